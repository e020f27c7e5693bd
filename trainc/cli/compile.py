"""`trainc compile`: a configuration file becomes an artifact."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from trainc.cli import options, output
from trainc.cli.progress import Reporter
from trainc.core.errors import UnsupportedError
from trainc.core.modes import resolve_numerics

if TYPE_CHECKING:
    from trainc.core.manifest import Manifest

Config = Annotated[
    Path, typer.Argument(metavar="CONFIG.toml", help="What to compile; see examples/.", show_default=False)
]
Out = Annotated[
    Path, typer.Option("--out", "-o", metavar="OUT.trainc", help="The artifact to write.", show_default=False)
]
Targets = Annotated[
    list[str] | None, typer.Option("--target", "-t", metavar="T", help="Compile for this target; default cpu.")
]
Mode = Annotated[
    Literal["deterministic", "fast", "identical"] | None,
    typer.Option("--mode", help="What is promised about bits; default deterministic, with bf16 fast."),
]
Precision = Annotated[
    Literal["f32", "bf16"],
    typer.Option("--precision", help="What the operands of large matrix products are rounded to."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything and report, but write nothing.")]


def compile_command(
    config: Config,
    out: Out,
    target: Targets = None,
    mode: Mode = None,
    precision: Precision = "f32",
    dry_run: DryRun = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compile a model and its training into an artifact."""
    resolve_numerics(mode, precision)
    targets = list(dict.fromkeys(target or ["cpu"]))
    if len(targets) > 1:
        raise UnsupportedError(f"--target must be one target in this version, got {', '.join(targets)}")

    from trainc.frontends.samba.config_file import load_config

    run_config = load_config(config)

    from trainc.frontends.samba.tracing.build import compile_samba

    start_s = time.monotonic()
    with Reporter(quiet) as reporter:
        manifest = compile_samba(
            run_config,
            out,
            target=targets[0],
            mode=mode,
            precision=precision,
            dry_run=dry_run,
            progress=reporter.note,
        )
    result = _result(manifest, out, time.monotonic() - start_s, dry_run)
    if as_json:
        output.emit_json(result)
    elif dry_run:
        output.emit(f"{config}: fits; nothing was written")
    else:
        output.emit(
            f"{out}: {len(manifest.entries)} entries, {output.size(result['size_bytes'])}, "
            f"compiled in {result['time_s']:.1f} s"
        )


def _result(manifest: "Manifest", out: Path, time_s: float, dry_run: bool) -> dict[str, Any]:
    files = [module for target in manifest.targets.values() for module in target.modules.values()]
    return {
        "artifact": None if dry_run else str(out),
        "kind": manifest.kind,
        "numeric_mode": manifest.numeric_mode,
        "precision": manifest.precision,
        "targets": sorted(manifest.targets),
        "entries": sorted(manifest.entries),
        "size_bytes": sum(module.size_bytes for module in files),
        "time_s": round(time_s, 3),
    }
