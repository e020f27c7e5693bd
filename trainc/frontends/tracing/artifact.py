"""From traced programs to an artifact."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trainc
from trainc.compiler.artifact_writer import write_artifact
from trainc.compiler.build import Module, Progress, compile_modules, describe_entries, lower
from trainc.compiler.iree import compiler_version
from trainc.compiler.targets import find_target
from trainc.core.manifest import Manifest, Target
from trainc.core.modes import DEFAULT_MODE, DEFAULT_PRECISION
from trainc.core.selftest import Draw
from trainc.core.state_table import StateTable
from trainc.frontends.tracing.selftest import selftest_beside
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
        draws: How the self-test draws each input of its entries; without any the artifact has no self-test.
    """

    programs: Mapping[str, Program]
    tables: Mapping[str, StateTable] = field(default_factory=dict)
    kind: str = "kernel"
    config: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    numeric_mode: str = DEFAULT_MODE
    precision: str = DEFAULT_PRECISION
    draws: Mapping[str, Draw] = field(default_factory=dict)


@dataclass(frozen=True)
class TargetReport:
    """What compiling for one target took.

    Attributes:
        target: Its name.
        modules: The compiled modules by name.
    """

    target: str
    modules: Mapping[str, Module]

    @property
    def size_bytes(self) -> int:
        """Bytes of all modules."""
        return sum(len(module.blob) for module in self.modules.values())

    @property
    def compile_s(self) -> float:
        """Seconds that compiling its modules took, one after the other; 0 if all were in the cache."""
        return sum(module.time_s for module in self.modules.values())

    @property
    def wall_s(self) -> float:
        """Seconds until the last of them was there, counted from the beginning of all compilations."""
        return max(module.done_s for module in self.modules.values())

    @property
    def cached(self) -> int:
        """Number of modules that were in the cache."""
        return sum(module.cached for module in self.modules.values())


def compile_artifact(
    source: Source,
    out: Path | str,
    *,
    targets: Sequence[str] = ("cpu",),
    dry_run: bool = False,
    progress: Progress | None = None,
    report: Callable[[TargetReport], None] | None = None,
) -> Manifest:
    """Compile an artifact and write it.

    Args:
        source: What to compile.
        out: The artifact's folder.
        targets: Names of the targets; the artifact holds modules for each.
        dry_run: Lower everything, but compile and write nothing.
        progress: Told what is being done, one line at a time.
        report: Told what each target took, once all are compiled.

    Returns:
        The artifact's manifest; in a dry run its targets have no modules.

    Raises:
        UnsupportedError: A target is unknown or lacks the precision; nothing was compiled.
        CompileError: A module does not compile.
        ArtifactError: The artifact cannot be written.
    """
    devices = [find_target(name) for name in dict.fromkeys(targets)]
    for device in devices:
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
        targets={
            device.name: Target(device.driver, device.arch, device.features, device.subgroup_sizes, {})
            for device in devices
        },
        compiler={
            "version": compiler_version(),
            "flags": {device.name: list(device.flags()) for device in devices},
        },
    )
    if dry_run:
        for kind in dict.fromkeys((device.family, device.vector_bytes) for device in devices):
            for program in source.programs.values():
                lower(program, source.tables, source.numeric_mode, source.precision, *kind)
        return manifest
    with selftest_beside(source.programs, source.tables, source.draws, source.precision) as selftest:
        compiled = compile_modules(
            source.programs, source.tables, devices, progress, source.numeric_mode, source.precision
        )
        manifest = dataclasses.replace(manifest, selftest=selftest())
    if report is not None:
        for name, modules in compiled.items():
            report(TargetReport(name, modules))
    blobs = {name: {key: module.blob for key, module in modules.items()} for name, modules in compiled.items()}
    return write_artifact(out, manifest, blobs)
