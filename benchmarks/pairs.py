"""Two contenders, trainc and PyTorch, on the same cases: they take turns in processes of their own, after a check."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping
from typing import Any

from benchmarks.contenders.protocol import Process
from benchmarks.outcome import DisagreementError, finish, new_parser

NAMES = ("trainc", "torch")
CHECKED_STEPS = 2


def run(name: str, description: str, cases: Mapping[str, Mapping[str, Any]], tolerance: float) -> int:
    """Checks, measures and prints every case.

    Args:
        name: Of the benchmark; its contenders are benchmarks/contenders/trainc_NAME.py and torch_NAME.py.
        description: For --help.
        cases: Job of each case by its title; `steps` of it is the number of steps of a turn.
        tolerance: How far the contenders' answers may be apart.

    Returns:
        The exit status: 6 if the contenders disagree, 1 for other failures.
    """
    parser = new_parser(description)
    parser.add_argument("--only", default="", help=f"a part of a title, of: {', '.join(cases)}")
    options = parser.parse_args()
    chosen = {title: case for title, case in cases.items() if options.only in title}
    return finish(
        name,
        lambda: {title: _compare(name, case, options, tolerance) for title, case in chosen.items()},
        _as_markdown,
        options.out,
    )


def _compare(name: str, case: Mapping[str, Any], options: argparse.Namespace, tolerance: float) -> dict[str, Any]:
    job = {**case, "threads": options.threads}
    processes: dict[str, Process] = {}
    try:
        for contender, python in zip(NAMES, (sys.executable, options.peer_python), strict=True):
            module = f"benchmarks.contenders.{contender}_{name}"
            processes[contender] = Process(module, job, python, {"OMP_NUM_THREADS": str(options.threads)})
        answers = {contender: process.run(CHECKED_STEPS)["losses"] for contender, process in processes.items()}
        if not all(abs(a - b) <= tolerance for a, b in zip(*answers.values(), strict=True)):
            raise DisagreementError(f"answers must be within {tolerance}, got {answers}")
        turns: dict[str, list[dict[str, Any]]] = {contender: [] for contender in NAMES}
        for number in range(options.rounds):
            for contender in NAMES if number % 2 else NAMES[::-1]:
                turns[contender].append(processes[contender].run(case["steps"]))
        facts = {contender: process.facts for contender, process in processes.items()}
    finally:
        for process in processes.values():
            process.close()
    figures = {contender: {**_figures(turns[contender]), "facts": facts[contender]} for contender in NAMES}
    ratio = {kind: figures["trainc"][kind] / figures["torch"][kind] for kind in ("median_s", "min_s")}
    return {"contenders": figures, "ratio": ratio}


def _figures(turns: list[dict[str, Any]]) -> dict[str, float]:
    times_s = [time_s for turn in turns for time_s in turn["times_s"]]
    return {
        "median_s": statistics.median(times_s),
        "min_s": min(times_s),
        "cpu_s": min(turn["cpu_s"] / len(turn["times_s"]) for turn in turns),
        "peak_rss_bytes": max(turn["peak_rss_bytes"] for turn in turns),
    }


def _as_markdown(report: dict[str, Any]) -> str:
    lines = ["| case | contender | median ms | min ms | CPU ms | peak RSS MB |", "|---|---|---|---|---|---|"]
    for title, result in report.items():
        for contender, row in result["contenders"].items():
            times = " | ".join(f"{1e3 * row[kind]:.2f}" for kind in ("median_s", "min_s", "cpu_s"))
            lines.append(
                f"| {title} | {contender} ({row['facts']['version']}) | {times} | {row['peak_rss_bytes'] / 1e6:.0f} |"
            )
    lines.append("")
    for title, result in report.items():
        ratio = result["ratio"]
        lines.append(f"- {title}: trainc / torch {ratio['median_s']:.2f} (medians), {ratio['min_s']:.2f} (minima)")
    return "\n".join(lines)
