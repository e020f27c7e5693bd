"""Time per token of long and short sequences: a model of Mamba-3 layers only should take the same for both.

    python benchmarks/lengths.py [--peer-python PYTHON] [--out FOLDER]

Four Mamba-3 layers of width 256, with 4,096 tokens a step in 16 sequences of 256 or in one of 4,096. Each length is
also trained by eager PyTorch, whose losses have to be the same: the exit status is 6 if they are not, and that of the
`trainc` command for other failures.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # so that it also runs as a plain script

from benchmarks import machine
from benchmarks.models import LENGTHS, TOKENS
from benchmarks.outcome import finish, new_parser
from benchmarks.rounds import Contender, measure, note, started, summary
from benchmarks.step_report import table
from benchmarks.training import ALLOCATORS, CHECKED_STEPS, require_same_training, write_job
from trainc.frontends.samba.tracing import build

SUBJECT, PEER = "trainc", "torch eager"


def main() -> int:
    """Runs the comparison; returns the exit status."""
    parser = new_parser(__doc__.partition("\n")[0], rounds=5)
    parser.add_argument("--steps", type=int, default=3, help="steps of a turn (default 3)")
    options = parser.parse_args()
    return finish("lengths", lambda: compare(options), as_markdown, options.out)


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Compiles, checks and measures; returns everything the report shows."""
    contenders: dict[str, Contender] = {}
    with tempfile.TemporaryDirectory(prefix="trainc-benchmark-") as folder:
        for length, config in LENGTHS.items():
            note(f"compiling for sequences of {length} ...")
            home = Path(folder) / str(length)
            home.mkdir()
            job = write_job(config, home, options.threads)
            build.compile_samba(config, job["artifact"])
            contenders[f"{SUBJECT} {length}"] = Contender("trainc_step", job)
            environment = {"OMP_NUM_THREADS": str(options.threads), **ALLOCATORS[", kept memory"]}
            job = {**job, "compiled": False}
            contenders[f"{PEER} {length}"] = Contender("torch_step", job, options.peer_python, environment)
        with started(contenders) as processes:
            for length in LENGTHS:
                names = (f"{SUBJECT} {length}", f"{PEER} {length}")
                require_same_training({name: processes[name].run(CHECKED_STEPS)["losses"] for name in names}, names[0])
            turns, share = measure(processes, rounds=options.rounds, steps=options.steps, warmup=2)
            facts = {name: process.facts for name, process in processes.items()}
    figures = {name: {**summary(of_one, TOKENS), "facts": facts[name]} for name, of_one in turns.items()}
    short, long = (f"{SUBJECT} {length}" for length in LENGTHS)
    ratio = {kind: figures[long][kind] / figures[short][kind] for kind in ("median_s", "min_s")}
    return {
        "machine": machine.describe(),
        "threads": options.threads,
        "contenders": figures,
        "ratio": ratio,
        "foreign_share": share,
    }


def as_markdown(report: dict[str, Any]) -> str:
    """The report as Markdown."""
    cells = [
        [
            f"{name} ({row['facts']['version']})",
            f"{1e6 * row['median_s'] / TOKENS:.1f}",
            f"{1e6 * row['min_s'] / TOKENS:.1f}",
            f"{row['peak_rss_bytes'] / 1e6:,.0f}",
        ]
        for name, row in report["contenders"].items()
    ]
    ratio, (short, long) = report["ratio"], LENGTHS
    return "\n\n".join(
        [
            machine.machine_line(report["machine"], report["threads"]),
            table(("contender and length", "median us/token", "min us/token", "peak RSS MB"), cells),
            f"- {SUBJECT}, time per token at {long} / at {short}: {ratio['median_s']:.3f} (medians), "
            f"{ratio['min_s']:.3f} (minima)\n- {machine.foreign_line(report['foreign_share'])}",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
