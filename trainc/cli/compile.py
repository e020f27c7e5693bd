"""`trainc compile`: a configuration file becomes an artifact."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from trainc.cli import options, output
from trainc.cli.progress import Reporter
from trainc.core.modes import resolve_numerics

if TYPE_CHECKING:
    from trainc.core.manifest import Manifest
    from trainc.frontends.tracing.artifact import TargetReport

Config = Annotated[
    Path, typer.Argument(metavar="CONFIG.toml", help="What to compile; see examples/.", show_default=False)
]
Out = Annotated[
    Path, typer.Option("--out", "-o", metavar="OUT.trainc", help="The artifact to write.", show_default=False)
]
Targets = Annotated[
    list[str] | None,
    typer.Option("--target", "-t", metavar="T", help="Compile for this target too; see `trainc targets`; default cpu."),
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
    from trainc.frontends.samba.config_file import load_config

    run_config = load_config(config)

    from trainc.frontends.samba.tracing.build import compile_samba

    start_s, reports = time.monotonic(), list["TargetReport"]()
    with Reporter(quiet) as reporter:
        manifest = compile_samba(
            run_config,
            out,
            targets=target or ["cpu"],
            mode=mode,
            precision=precision,
            dry_run=dry_run,
            progress=reporter.note,
            report=reports.append,
        )
    result = _result(manifest, out, reports, time.monotonic() - start_s, dry_run)
    if as_json:
        output.emit_json(result)
    elif dry_run:
        output.emit(f"{config}: fits; nothing was written")
    else:
        output.emit(
            f"{out}: {len(manifest.entries)} entries, {output.size(result['size_bytes'])}, "
            f"compiled in {result['time_s']:.1f} s"
        )
        _show(reports)


def _result(
    manifest: "Manifest", out: Path, reports: "list[TargetReport]", time_s: float, dry_run: bool
) -> dict[str, Any]:
    return {
        "artifact": None if dry_run else str(out),
        "kind": manifest.kind,
        "numeric_mode": manifest.numeric_mode,
        "precision": manifest.precision,
        "targets": {name: {} for name in manifest.targets} | {item.target: _times(item) for item in reports},
        "entries": sorted(manifest.entries),
        "size_bytes": sum(item.size_bytes for item in reports),
        "time_s": round(time_s, 3),
    }


def _times(report: "TargetReport") -> dict[str, Any]:
    return {
        "size_bytes": report.size_bytes,
        "compile_s": round(report.compile_s, 3),
        "wall_s": round(report.wall_s, 3),
        "modules": {
            name: {"size_bytes": len(module.blob), "compile_s": round(module.time_s, 3), "cached": module.cached}
            for name, module in report.modules.items()
        },
    }


def _show(reports: "list[TargetReport]") -> None:
    """Print what each target took: the sum of its modules' times, and the time until the last was there."""
    output.emit_table(
        ("TARGET", "MODULES", "CACHED", "SIZE", "COMPILE s", "DONE AFTER s"),
        (
            (
                item.target,
                len(item.modules),
                item.cached,
                output.size(item.size_bytes),
                f"{item.compile_s:.1f}",
                f"{item.wall_s:.1f}",
            )
            for item in reports
        ),
    )
