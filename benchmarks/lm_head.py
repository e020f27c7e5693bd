"""Memory and time of a language-model head's loss with gradients: chunked, dense, and dense in eager PyTorch.

    python benchmarks/lm_head.py [--peer-python PYTHON] [--out FOLDER]

2,048 tokens of width 256 and 50,257 classes, float32. The dense forms keep the logits in memory. Memory is what a
process needed at most in its first call, beyond what it held before the call and the gradients that are returned;
everything had been compiled and loaded by a call on few tokens. Times come from later calls, in rounds.

Nothing is reported unless the losses agree: the exit status is 6 if they do not, and 1 for other failures.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # so that it also runs as a plain script

from benchmarks import machine
from benchmarks.outcome import finish, new_parser
from benchmarks.rounds import Contender, measure, require_agreement, started, summary
from benchmarks.step_report import table
from benchmarks.training import ALLOCATORS

TOKENS, WIDTH, CLASSES = 2048, 256, 50257
GRADIENT_BYTES = 4 * WIDTH * (TOKENS + CLASSES)
# The loss is about 11.3; a float32 mean over 2,048 tokens of sums over 50,257 classes.
TOLERANCE = 2e-5
SUBJECT = "trainc, chunked"
PEERS = ("trainc, dense", "torch eager, dense", "torch eager, dense, kept memory")


def main() -> int:
    """Runs the comparison; returns the exit status."""
    parser = new_parser(__doc__.partition("\n")[0], rounds=15)
    options = parser.parse_args()
    return finish("lm_head", lambda: compare(options), as_markdown, options.out)


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Checks and measures; returns everything the report shows."""
    job = {"shape": [TOKENS, WIDTH, CLASSES], "threads": options.threads, "function": "lm_head_dense"}
    contenders = {
        SUBJECT: Contender("trainc_functional", {**job, "function": "lm_head"}),
        "trainc, dense": Contender("trainc_functional", job),
    }
    for addition, allocator in ALLOCATORS.items():
        environment = {"OMP_NUM_THREADS": str(options.threads), **allocator}
        contender = Contender("torch_functional", job, options.peer_python, environment)
        contenders[f"torch eager, dense{addition}"] = contender
    with started(contenders) as processes:
        first = {name: process.run(1) for name, process in processes.items()}
        require_agreement({name: answer["losses"] for name, answer in first.items()}, SUBJECT, TOLERANCE)
        turns, share = measure(processes, rounds=options.rounds, steps=1, warmup=1)
        facts = {name: process.facts for name, process in processes.items()}
    figures = {}
    for name, of_one in turns.items():
        extra_bytes = first[name]["peak_rss_bytes"] - facts[name]["held_bytes"] - GRADIENT_BYTES
        figures[name] = {**summary(of_one, TOKENS), "extra_bytes": extra_bytes, "facts": facts[name]}
    return {
        "machine": machine.describe(),
        "threads": options.threads,
        "contenders": figures,
        "ratios": {name: figures[SUBJECT]["median_s"] / figures[name]["median_s"] for name in PEERS},
        "foreign_share": share,
    }


def as_markdown(report: dict[str, Any]) -> str:
    """The report as Markdown."""
    cells = [
        [
            f"{name} ({row['facts']['version']})",
            f"{row['extra_bytes'] / 1e6:,.0f}",
            f"{1e3 * row['median_s']:,.0f}",
            f"{1e3 * row['min_s']:,.0f}",
        ]
        for name, row in report["contenders"].items()
    ]
    ratios = ", ".join(f"{ratio:.2f} of {name}" for name, ratio in report["ratios"].items())
    return "\n\n".join(
        [
            machine.machine_line(report["machine"], report["threads"]),
            table(("form", "memory MB", "median ms", "min ms"), cells),
            f"- time of {SUBJECT}: {ratios} (medians)\n- {machine.foreign_line(report['foreign_share'])}",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
