"""`trainc inspect`: what an artifact holds."""

import math
from typing import TYPE_CHECKING, Any

from trainc.cli import options, output

if TYPE_CHECKING:
    from trainc.core.manifest import Argument, Manifest


def inspect_command(artifact: options.Artifact, as_json: options.Json = False, quiet: options.Quiet = False) -> None:
    """Check an artifact and show what it holds."""
    from trainc.runtime.artifact import Artifact

    del quiet  # nothing is printed but the result
    manifest = Artifact.open(artifact).manifest
    if as_json:
        output.emit_json(manifest.to_json())
    else:
        _show(str(artifact), manifest)


def _show(name: str, manifest: "Manifest") -> None:
    output.emit(f"{name}: {manifest.kind}, {manifest.numeric_mode}, {manifest.precision}")
    output.emit(f"compiled by trainc {manifest.trainc_version}, compiler {manifest.compiler.get('version', '?')}")
    for title, values in (("model", manifest.config), *manifest.settings.items()):
        if isinstance(values, dict):
            output.emit(f"\n{title}: " + ", ".join(f"{key} {_short(value)}" for key, value in values.items()))
    output.emit("")
    output.emit_table(
        ("STATE", "TENSORS", "VALUES", "SIZE"),
        (
            (
                state_name,
                len(table.tensors),
                f"{sum(math.prod(tensor.shape) for tensor in table.tensors):,}",
                output.size(4 * table.size),
            )
            for state_name, table in manifest.state.items()
        ),
    )
    output.emit("")
    output.emit_table(
        ("ENTRY", "MODULE", "ARGUMENTS"),
        (
            (entry_name, entry.module, ", ".join(_argument(argument) for argument in entry.args))
            for entry_name, entry in manifest.entries.items()
        ),
    )
    output.emit("")
    output.emit_table(
        ("TARGET", "ARCH", "MODULE", "SIZE"),
        (
            (target_name, target.arch or "-", module_name, output.size(module.size_bytes))
            for target_name, target in manifest.targets.items()
            for module_name, module in target.modules.items()
        ),
    )


def _argument(argument: "Argument") -> str:
    return argument.name if not argument.shape else f"{argument.name}[{'x'.join(map(str, argument.shape))}]"


def _short(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_short, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)
