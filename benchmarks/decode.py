"""Tokens per second of decoding on the CPU: trainc against eager PyTorch with caches, as ratios measured in one run.

    python benchmarks/decode.py [--model NAME] [--peer-python PYTHON] [--out FOLDER]

One sequence and sixteen side by side; each reads a prompt of its own and goes on with the likeliest token. PyTorch runs
with as many threads as trainc and with one, and the better one counts.

Nothing is reported unless the first tokens are the same: the exit status is 6 if they are not, and that of the `trainc`
command for other failures.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # so that it also runs as a plain script

from benchmarks import machine
from benchmarks.models import MODELS
from benchmarks.outcome import finish, new_parser
from benchmarks.rounds import Contender, measure, note, require_agreement, started, summary
from benchmarks.step_report import table
from benchmarks.training import write_job
from trainc.frontends.samba.config_file import DecodeConfig
from trainc.frontends.samba.tracing import build

ROWS = (1, 16)
MAX_TOKENS = 1024
CHECKED_TOKENS = 64
SUBJECT, PEER, PEER_ALONE = "trainc", "torch eager", "torch eager, one thread"


def main() -> int:
    """Runs the comparison; returns the exit status."""
    parser = new_parser(__doc__.partition("\n")[0], rounds=5)
    parser.add_argument("--model", choices=MODELS, default="S", help="the model (default S)")
    parser.add_argument("--steps", type=int, default=150, help="tokens of a turn (default 150)")
    options = parser.parse_args()
    return finish("decode", lambda: compare(options), as_markdown, options.out)


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Compiles, checks and measures; returns everything the report shows."""
    results = {}
    for rows in ROWS:
        with tempfile.TemporaryDirectory(prefix="trainc-benchmark-") as folder:
            results[rows] = compare_rows(rows, options, Path(folder))
    return {"machine": machine.describe(), "threads": options.threads, "model": options.model, "rows": results}


def compare_rows(rows: int, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Compares the contenders on a number of sequences."""
    decode = DecodeConfig(rows=rows, max_tokens=MAX_TOKENS)
    config = dataclasses.replace(MODELS[options.model].config, decode=decode)
    job = {**write_job(config, folder, options.threads), "rows": rows, "max_tokens": MAX_TOKENS}
    note(f"compiling for {rows} rows ...")
    build.compile_samba(config, job["artifact"])
    contenders = {SUBJECT: Contender("trainc_decode", job)}
    for name, threads in ((PEER, options.threads), (PEER_ALONE, 1)):
        environment = {"OMP_NUM_THREADS": str(threads)}
        contenders[name] = Contender("torch_decode", {**job, "threads": threads}, options.peer_python, environment)
    with started(contenders) as processes:
        tokens = {name: process.run(CHECKED_TOKENS)["losses"] for name, process in processes.items()}
        require_agreement(tokens, SUBJECT, tolerance=0)
        turns, share = measure(processes, rounds=options.rounds, steps=options.steps, warmup=10)
        facts = {name: process.facts for name, process in processes.items()}
    figures = {name: {**summary(of_one, rows), "facts": facts[name]} for name, of_one in turns.items()}
    best = max(figures[name]["tokens_per_s"] for name in (PEER, PEER_ALONE))
    return {"contenders": figures, "ratio": figures[SUBJECT]["tokens_per_s"] / best, "foreign_share": share}


def as_markdown(report: dict[str, Any]) -> str:
    """The report as Markdown."""
    cells = [
        [
            str(rows),
            f"{name} ({row['facts']['version']})",
            f"{1e3 * row['median_s']:.2f}",
            f"{1e3 * row['min_s']:.2f}",
            f"{row['tokens_per_s']:,.0f}",
        ]
        for rows, result in report["rows"].items()
        for name, row in result["contenders"].items()
    ]
    lines = [
        f"- {rows} rows: tokens/s, {SUBJECT} / the better torch {result['ratio']:.2f}; "
        f"{machine.foreign_line(result['foreign_share'])}"
        for rows, result in report["rows"].items()
    ]
    return "\n\n".join(
        [
            machine.machine_line(report["machine"], report["threads"]),
            table(("rows", "contender", "median ms", "min ms", "tokens/s"), cells),
            "\n".join(lines),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
