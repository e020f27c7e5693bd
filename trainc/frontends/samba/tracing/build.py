"""From a Samba run configuration to an artifact on disk."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from trainc.compiler.build import Progress
from trainc.core.manifest import Manifest
from trainc.core.modes import DEFAULT_PRECISION, resolve_numerics
from trainc.frontends.samba.config_file import SambaRunConfig
from trainc.frontends.samba.tracing.entries import COMMON, MODULES, state_tables, trace_entry
from trainc.frontends.samba.tracing.selftest_draws import selftest_draws
from trainc.frontends.tracing.artifact import Source, TargetReport, compile_artifact


def samba_source(
    run: SambaRunConfig,
    modules: Iterable[str] = tuple(MODULES),
    mode: str | None = None,
    precision: str = DEFAULT_PRECISION,
) -> Source:
    """Trace a Samba model and its training.

    Args:
        run: The model and the shapes and settings of its training.
        modules: Which modules to trace; all of them by default.
        mode: Numeric mode, or None for the precision's own.
        precision: "f32" or "bf16".

    Raises:
        ConfigError: The model's heads do not fit together.
        UsageError: Mode and precision do not go together.
        UnsupportedError: The mode is not offered.
    """
    run.model.check_buildable()
    return Source(
        programs={name: MODULES[name](run) for name in modules},
        tables=state_tables(run),
        kind="samba",
        config=run.model.to_dict(),
        settings=run.settings(),
        numeric_mode=resolve_numerics(mode, precision),
        precision=precision,
        draws=selftest_draws(run),
    )


def shape_source(run: SambaRunConfig, entry: str, mode: str) -> Source:
    """Trace what a stack compiles on demand: one entry for one shape, or the module of the shape-free ones.

    Args:
        run: The model and the shape.
        entry: "common", or as for `trace_entry`.
        mode: Numeric mode.
    """
    return Source(
        programs={entry: MODULES[COMMON](run) if entry == COMMON else trace_entry(run, entry)},
        tables=state_tables(run),
        config=run.model.to_dict(),
        numeric_mode=mode,
    )


def compile_samba(
    run: SambaRunConfig,
    out: Path | str,
    *,
    targets: Sequence[str] = ("cpu",),
    mode: str | None = None,
    precision: str = DEFAULT_PRECISION,
    dry_run: bool = False,
    progress: Progress | None = None,
    report: Callable[[TargetReport], None] | None = None,
) -> Manifest:
    """Compile a Samba model and its training into an artifact.

    Args:
        run: The model and the shapes and settings of its training.
        out: The artifact's folder.
        targets: Names of the targets; the artifact holds modules for each.
        mode: Numeric mode, or None for the precision's own.
        precision: "f32" or "bf16".
        dry_run: Trace and lower everything, but compile and write nothing.
        progress: Told what is being done, one line at a time.
        report: Told what each target took, once all are compiled.

    Returns:
        The artifact's manifest; in a dry run its targets have no modules.

    Raises:
        ConfigError: The model's heads do not fit together.
        UsageError: Mode and precision do not go together.
        UnsupportedError: A target or the mode is unknown or not offered, or a target lacks the precision.
        CompileError: A module does not compile.
        ArtifactError: The artifact cannot be written.
    """
    source = samba_source(run, mode=mode, precision=precision)
    return compile_artifact(source, out, targets=targets, dry_run=dry_run, progress=progress, report=report)
