"""`trainc bench`: how fast an artifact is, and where its time goes."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainc.cli import options, output
from trainc.cli.progress import Reporter
from trainc.core.errors import UnsupportedError

if TYPE_CHECKING:
    from trainc.runtime.bench import StepTimes, Times
    from trainc.runtime.step import StepResult

Steps = Annotated[int, typer.Option("--steps", metavar="K", min=1, help="Steps to time, after two that do not count.")]
Profile = Annotated[bool, typer.Option("--profile", help="Also list time by dispatch; this needs the compiler.")]


def bench_command(
    artifact: options.Artifact,
    steps: Steps = 20,
    profile: Profile = False,
    device: options.Device = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure training steps and decoding on made-up data.

    With --profile also time by dispatch, with the op and source line each came from.
    """
    if profile:
        from trainc.compiler.iree import iree_compile_path

        iree_compile_path()  # said before time is spent on measuring
    from trainc.cli.loading import Model
    from trainc.runtime.bench import time_decoding, time_steps
    from trainc.runtime.loop import peak_memory_bytes

    model = Model.open(artifact)
    program = model.program(device)
    if profile and not program.device.uses_host_memory:
        raise UnsupportedError(f"a profile can be made on device 'cpu' only, got {program.device.info}")
    with Reporter(quiet) as reporter:
        reporter.begin("bench", steps)
        times = time_steps(program, model.driver, steps, _teller(reporter))
        reporter.end()
        peak_bytes = peak_memory_bytes()
        decoding = time_decoding(program, model.driver, steps)
        result: dict[str, Any] = {
            "artifact": str(artifact),
            "kind": model.artifact.manifest.kind,
            "device": program.device.name,
            "hardware": program.device.info.hardware,
            "threads": program.device.threads,
            **_steps(times),
            "peak_memory_bytes": peak_bytes,
            "decode": None if decoding is None else _decoding(*decoding),
        }
        if profile:
            from trainc.cli.bench_profile import profile_step

            result["profile"] = profile_step(program, times.calls, reporter.note)
    if as_json:
        output.emit_json(result)
        return
    if profile:
        from trainc.cli.bench_profile import show_profile

        show_profile(result["profile"])
    _show(result)


def _teller(reporter: Reporter) -> "Callable[[int, StepResult, float], None]":
    def tell(step: int, result: "StepResult", time_s: float) -> None:
        reporter.step(step, {"train/loss": result.loss, "perf/tokens_per_s": result.tokens / time_s})

    return tell


def _steps(times: "StepTimes") -> dict[str, Any]:
    return {
        "tokens_per_step": times.tokens,
        "step": _times(times.step),
        "tokens_per_s": round(times.tokens / times.step.median_s, 1),
        "entries": {name: _times(part) for name, part in times.entries.items()},
    }


def _decoding(rows: int, times: "Times") -> dict[str, Any]:
    return {"rows": rows, **_times(times), "tokens_per_s": round(rows / times.median_s, 1)}


def _times(times: "Times") -> dict[str, Any]:
    return {
        "count": len(times.seconds),
        "calls": times.calls,
        "median_ms": round(1e3 * times.median_s, 4),
        "min_ms": round(1e3 * times.min_s, 4),
    }


def _show(result: dict[str, Any]) -> None:
    step, decode = result["step"], result["decode"]
    rows = [("step", step), *((f"  {name}", part) for name, part in result["entries"].items())]
    if decode is not None:
        rows.append(("decode", decode))
    output.emit_table(
        ("ENTRY", "CALLS", "MEDIAN ms", "MIN ms"),
        ((name, part["calls"], f"{part['median_ms']:.3f}", f"{part['min_ms']:.3f}") for name, part in rows),
    )
    output.emit("")
    output.emit(f"training     {result['tokens_per_s']:,.0f} tokens/s, {result['tokens_per_step']:,} tokens a step")
    if decode is not None:
        output.emit(f"decoding     {decode['tokens_per_s']:,.0f} tokens/s, {decode['rows']} side by side")
    output.emit(f"peak memory  {output.size(result['peak_memory_bytes'])}")
    threads = f", {result['threads']} threads" if result["threads"] else ""
    output.emit(f"measured     {step['count']} steps on {result['device']} ({result['hardware']}){threads}")
