"""From a Samba run configuration to an artifact on disk."""

from pathlib import Path

import trainc
from trainc.compiler.artifact_writer import write_artifact
from trainc.compiler.build import Progress, compile_modules, describe_entries, lower
from trainc.compiler.iree import compiler_version
from trainc.compiler.targets import find_target
from trainc.core.manifest import Manifest, Target
from trainc.core.modes import DEFAULT_MODE, resolve_mode
from trainc.frontends.samba.config_file import SambaRunConfig
from trainc.frontends.samba.tracing.entries import (
    COMMON,
    MODEL,
    TRAIN,
    state_tables,
    trace_common,
    trace_model,
    trace_train,
)


def compile_samba(
    run: SambaRunConfig,
    out: Path | str,
    *,
    target: str = "cpu",
    mode: str = DEFAULT_MODE,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Manifest:
    """Compile a Samba model and its training into an artifact.

    Args:
        run: The model and the shapes and settings of its training.
        out: The artifact's folder.
        target: Name of the target.
        mode: Numeric mode.
        dry_run: Trace and lower everything, but compile and write nothing.
        progress: Told what is being done, one line at a time.

    Returns:
        The artifact's manifest; in a dry run its targets have no modules.

    Raises:
        ConfigError: The model's heads do not fit together.
        UnsupportedError: The target or mode is unknown or not offered.
        CompileError: A module does not compile.
        ArtifactError: The artifact cannot be written.
    """
    run.model.check_buildable()
    numeric_mode = resolve_mode(mode)
    device = find_target(target)
    tables = state_tables(run)
    programs = {TRAIN: trace_train(run), COMMON: trace_common(run), MODEL: trace_model(run)}
    manifest = Manifest(
        trainc_version=trainc.__version__,
        kind="samba",
        config=run.model.to_dict(),
        settings=run.settings(),
        numeric_mode=numeric_mode,
        precision="f32",
        state={table.name: table for table in tables.values()},
        entries=describe_entries(programs, tables),
        targets={device.name: Target(device.driver, device.cpu, device.features, {})},
        compiler={"version": compiler_version(), "flags": list(device.flags())},
    )
    if dry_run:
        for program in programs.values():
            lower(program, tables)
        return manifest
    return write_artifact(out, manifest, {device.name: compile_modules(programs, tables, device, progress)})
