"""The profile of `trainc bench`: the time of each dispatch, joined with the ops that the dispatch computes."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trainc
from trainc.cli import output

if TYPE_CHECKING:
    from trainc.compiler.dispatch_table import Dispatch
    from trainc.ir.locations import Site
    from trainc.runtime.bench import Call
    from trainc.runtime.dispatch_times import DispatchTime
    from trainc.runtime.limits import Limits
    from trainc.runtime.program import Program

ROUNDS = 10
"""Calls of each entry under the profiler; the shortest time of a dispatch counts."""

UNKNOWN = "-"
_SHOWN_SHARE = 1e-3


def profile_step(program: "Program", calls: Sequence["Call"], tell: Callable[[str], None]) -> dict[str, Any]:
    """Profile the entries of a training step.

    Args:
        program: The artifact on a device.
        calls: One call of each entry of a step.
        tell: Told what is being done.

    Returns:
        The profile as plain values, ready for JSON.
    """
    from trainc.runtime.dispatch_times import time_dispatches
    from trainc.runtime.limits import measure_limits

    tell("finding the ops of each dispatch")
    known = _dispatches(program, calls)
    tell("measuring what this machine can do")
    limits = measure_limits(program.device.threads)
    rows = []
    for call in calls:
        tell(f"profiling {call.entry}")
        timed = time_dispatches(program.artifact, program.device, call.entry, call.arguments, ROUNDS)
        rows += [_row(call, item, known.get(item.name), limits) for item in timed]
    strangers = sum(row["name"] not in known for row in rows)
    if strangers:
        tell(f"{strangers} dispatches are not in what this trainc makes of the model; compile the artifact again")
    total_ms = sum(row["time_ms"] for row in rows)
    for row in rows:
        row["share"] = row["time_ms"] / total_ms
    return {
        "matmul_gflops": round(limits.flops_per_s / 1e9, 1),
        "copy_gbytes_per_s": round(limits.bytes_per_s / 1e9, 1),
        "time_ms": total_ms,
        "limit_ms": sum(row["time_ms"] * (row["limit_share"] or 0) for row in rows),
        "calls": sum(row["calls"] for row in rows),
        "dispatches": sorted(rows, key=lambda row: -row["time_ms"]),
        "ops": _by_op(rows),
    }


def _dispatches(program: "Program", calls: Iterable["Call"]) -> "dict[str, Dispatch]":
    from trainc.compiler.dispatch_table import dispatch_table
    from trainc.compiler.targets import find_target
    from trainc.frontends.tracing.sources import source_of

    modules = dict.fromkeys(program.entry(call.entry).module for call in calls)
    source = source_of(program.manifest, modules)
    target = find_target(program.device.name)
    found: dict[str, Dispatch] = {}
    for traced in source.programs.values():
        found |= dispatch_table(traced, source.tables, target, source.numeric_mode, source.precision)
    return found


def _row(call: "Call", timed: "DispatchTime", dispatch: "Dispatch | None", limits: "Limits") -> dict[str, Any]:
    calls = timed.calls * call.calls
    sites = () if dispatch is None else dispatch.sites
    size_bytes = None if dispatch is None or dispatch.bytes is None else dispatch.bytes * calls
    flops = None if dispatch is None or dispatch.flops is None else dispatch.flops * calls
    known = size_bytes is not None and flops is not None
    time_s = timed.min_s * calls
    return {
        "entry": call.entry,
        "name": timed.name,
        "calls": calls,
        "time_ms": 1e3 * time_s,
        "ops": _shares([site.op for site in sites]),
        "layers": list(dict.fromkeys(site.layer for site in sites if site.layer)),
        "sources": list(dict.fromkeys(_source(site) for site in sites)),
        "fused": [] if dispatch is None else list(dispatch.fused),
        "bytes": size_bytes,
        "flops": flops,
        "limit_share": limits.least_s(flops or 0, size_bytes or 0) / time_s if known and time_s else None,
    }


def _shares(ops: list[str]) -> dict[str, float]:
    """How large a part of a dispatch's calls each op has."""
    return {op: ops.count(op) / len(ops) for op in dict.fromkeys(ops)}


def _source(site: "Site") -> str:
    """File and line, the file relative to the folder of the package, or its name alone if it is elsewhere."""
    path, root = Path(site.file), Path(trainc.__file__).parents[1]
    return f"{path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name}:{site.line}"


def _by_op(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    totals: dict[str, dict[str, Any]] = {}
    for row in rows:
        for op, part in (row["ops"] or {UNKNOWN: 1.0}).items():
            total = totals.setdefault(op, {"op": op, "calls": 0, "time_ms": 0.0, "share": 0.0})
            total["calls"] += round(row["calls"] * part)
            total["time_ms"] += row["time_ms"] * part
            total["share"] += row["share"] * part
    return sorted(totals.values(), key=lambda total: -total["time_ms"])


def show_profile(profile: dict[str, Any]) -> None:
    """Print a profile for people: the dispatches, longest first, then the ops."""
    rows = profile["dispatches"]
    shown = [row for row in rows if row["share"] >= _SHOWN_SHARE]
    output.emit_table(
        ("TIME ms", "SHARE", "CALLS", "MB", "MFLOP", "LIMIT", "OP", "LAYER", "SOURCE", "DISPATCH"),
        (_cells(row) for row in shown),
    )
    if len(shown) < len(rows):
        rest = rows[len(shown) :]
        output.emit(f"and {len(rest)} more, together {sum(row['time_ms'] for row in rest):.3f} ms")
    output.emit("")
    output.emit_table(
        ("OP", "CALLS", "TIME ms", "SHARE"),
        ((op["op"], op["calls"], f"{op['time_ms']:.3f}", f"{op['share']:.1%}") for op in profile["ops"]),
    )
    output.emit("")
    output.emit(f"dispatches   {profile['calls']} a step, {profile['time_ms']:.3f} ms")
    output.emit(f"at limits    {profile['limit_ms']:.3f} ms")
    output.emit(
        f"limits       {profile['matmul_gflops']:,.0f} GFLOP/s (matrix product), "
        f"{profile['copy_gbytes_per_s']:,.1f} GB/s (copy)\n"
    )


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    ops = ", ".join(row["ops"]) or UNKNOWN
    return (
        f"{row['time_ms']:.3f}",
        f"{row['share']:.1%}",
        str(row["calls"]),
        UNKNOWN if row["bytes"] is None else f"{row['bytes'] / 1e6:.1f}",
        UNKNOWN if row["flops"] is None else f"{row['flops'] / 1e6:.1f}",
        UNKNOWN if row["limit_share"] is None else f"{row['limit_share']:.0%}",
        f"{ops} + {', '.join(row['fused'])}" if row["fused"] else ops,
        _short(row["layers"]) or UNKNOWN,
        ", ".join(source.rpartition("/")[2] for source in row["sources"]) or UNKNOWN,
        row["name"],
    )


def _short(layers: list[str]) -> str:
    """Layer paths in little room: those that differ only at the end share their beginning."""
    ends: dict[str, list[str]] = {}
    for path in sorted(layers):
        start, _, end = path.rpartition(".")
        ends.setdefault(start, []).append(end)
    return " ".join(f"{start}.{','.join(last)}" if start else " ".join(last) for start, last in ends.items())
