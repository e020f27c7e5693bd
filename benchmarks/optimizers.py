"""Time of one AdamW step on the CPU: trainc against PyTorch's fused AdamW, as a ratio measured in one run.

    python benchmarks/optimizers.py [--peer-python PYTHON] [--out FOLDER]

Ten million parameters in one tensor, with a gradient that starts as far from a boundary of 64 bytes as they do and with
one that does not, and one tensor of 64 x 8. Each contender steps the same parameters with the
same gradients in a process of its own; they take turns, in rounds, and wait without using a processor in between.

Nothing is reported unless the parameters agree after the first steps: the exit status is 6 if they do not, and 1 for
other failures.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # so that it also runs as a plain script

from benchmarks.contenders.protocol import Process
from benchmarks.outcome import DisagreementError, finish, new_parser

CASES = {
    "10 M parameters": {"shape": [10_000_000], "apart": False},
    "10 M parameters, gradient at another alignment": {"shape": [10_000_000], "apart": True},
    "64 x 8 parameters": {"shape": [64, 8], "apart": False},
}
CHECKED_STEPS = 3
# What a contender answers after a step is the mean square of its parameters. Both compute in float32 and torch takes
# its bias corrections in float64: the parameters are apart by 1e-4 of a step of lr = 1e-3 at most.
TOLERANCE = 1e-6


def main() -> int:
    """Runs the comparison; returns the exit status."""
    options = parse_options()
    return finish(
        "optimizers",
        lambda: {name: compare(case, options) for name, case in CASES.items()},
        as_markdown,
        options.out,
    )


def parse_options() -> argparse.Namespace:
    """Reads the command line."""
    parser = new_parser(__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=20, help="steps of a turn (default 20)")
    return parser.parse_args()


def compare(case: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Checks and measures one case; returns the figures of each contender and their ratios."""
    job = {**case, "threads": options.threads}
    processes: dict[str, Process] = {}
    try:
        for name, python in (("trainc", sys.executable), ("torch", options.peer_python)):
            module = f"benchmarks.contenders.{name}_adamw"
            processes[name] = Process(module, job, python, {"OMP_NUM_THREADS": str(options.threads)})
        require_agreement({name: process.run(CHECKED_STEPS)["losses"] for name, process in processes.items()})
        times_s: dict[str, list[float]] = {name: [] for name in processes}
        for number in range(options.rounds):
            order = list(processes) if number % 2 else list(processes)[::-1]
            for name in order:
                times_s[name] += processes[name].run(options.steps)["times_s"]
        facts = {name: process.facts for name, process in processes.items()}
    finally:
        for process in processes.values():
            process.close()
    figures = {
        name: {"median_s": statistics.median(times), "min_s": min(times), "facts": facts[name]}
        for name, times in times_s.items()
    }
    ratio = {kind: figures["trainc"][kind] / figures["torch"][kind] for kind in ("median_s", "min_s")}
    return {"contenders": figures, "ratio": ratio}


def require_agreement(answers: dict[str, list[float]]) -> None:
    """Refuses parameters that differ between the contenders.

    Raises:
        DisagreementError: With both sequences.
    """
    for ours, theirs in zip(answers["trainc"], answers["torch"], strict=True):
        if not abs(ours - theirs) <= TOLERANCE:
            raise DisagreementError(f"mean squares of the parameters must be within {TOLERANCE}, got {answers}")


def as_markdown(report: dict[str, Any]) -> str:
    """The report as Markdown."""
    lines = ["| case | contender | median ms | min ms |", "|---|---|---|---|"]
    for case, result in report.items():
        for name, row in result["contenders"].items():
            times = f"{1e3 * row['median_s']:.3f} | {1e3 * row['min_s']:.3f}"
            lines.append(f"| {case} | {name} ({row['facts']['version']}) | {times} |")
    lines.append("")
    for case, result in report.items():
        ratio = result["ratio"]
        lines.append(f"- {case}: trainc / torch {ratio['median_s']:.2f} (medians), {ratio['min_s']:.2f} (minima)")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
