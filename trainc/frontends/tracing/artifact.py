"""From traced programs to an artifact."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trainc
from trainc.compiler.artifact_writer import write_artifact
from trainc.compiler.build import Progress, compile_modules, describe_entries, lower
from trainc.compiler.iree import compiler_version
from trainc.compiler.targets import find_target
from trainc.core.manifest import Manifest, Target
from trainc.core.modes import DEFAULT_MODE, DEFAULT_PRECISION
from trainc.core.state_table import StateTable
from trainc.ir.program import Program


@dataclass(frozen=True)
class Source:
    """What an artifact is compiled from.

    Attributes:
        programs: Traced modules by name; all their functions become entries.
        tables: Layout of each flat buffer the programs name.
        kind: Kind in the manifest.
        config: Configuration in the manifest.
        settings: Settings in the manifest.
        numeric_mode: Numeric mode it is compiled in.
        precision: What the operands of large matrix products are rounded to.
    """

    programs: Mapping[str, Program]
    tables: Mapping[str, StateTable] = field(default_factory=dict)
    kind: str = "kernel"
    config: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    numeric_mode: str = DEFAULT_MODE
    precision: str = DEFAULT_PRECISION


def compile_artifact(
    source: Source, out: Path | str, *, target: str = "cpu", dry_run: bool = False, progress: Progress | None = None
) -> Manifest:
    """Compile an artifact and write it.

    Args:
        source: What to compile.
        out: The artifact's folder.
        target: Name of the target.
        dry_run: Lower everything, but compile and write nothing.
        progress: Told what is being done, one line at a time.

    Returns:
        The artifact's manifest; in a dry run its targets have no modules.

    Raises:
        UnsupportedError: The target is unknown or lacks the precision.
        CompileError: A module does not compile.
        ArtifactError: The artifact cannot be written.
    """
    device = find_target(target)
    device.check_precision(source.precision)
    manifest = Manifest(
        trainc_version=trainc.__version__,
        kind=source.kind,
        config=dict(source.config),
        settings=dict(source.settings),
        numeric_mode=source.numeric_mode,
        precision=source.precision,
        state={table.name: table for table in source.tables.values()},
        entries=describe_entries(source.programs, source.tables),
        targets={device.name: Target(device.driver, device.cpu, device.features, (), {})},
        compiler={"version": compiler_version(), "flags": list(device.flags())},
    )
    if dry_run:
        for program in source.programs.values():
            lower(program, source.tables, source.numeric_mode, source.precision)
        return manifest
    modules = compile_modules(source.programs, source.tables, device, progress, source.numeric_mode, source.precision)
    return write_artifact(out, manifest, {device.name: modules})
