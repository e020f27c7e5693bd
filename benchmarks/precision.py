"""Time of a training step with bf16 matrix products, over that in float32, of trainc on the CPU.

    python benchmarks/precision.py [--model NAME ...] [--out FOLDER]

Both precisions train the same weights on the same batch. Nothing is reported unless the losses of the first steps are
within 1 % of each other: the exit status is 6 if they are not, and that of the `trainc` command for other failures.
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
from benchmarks.models import MODELS, Model
from benchmarks.outcome import finish, new_parser
from benchmarks.rounds import Contender, measure, note, require_agreement, started, summary
from benchmarks.step_report import table
from benchmarks.training import CHECKED_STEPS, write_job
from trainc.frontends.samba.tracing import build

PRECISIONS = ("f32", "bf16")
TOLERATED_SHARE = 0.01


def main() -> int:
    """Runs the comparison; returns the exit status."""
    parser = new_parser(__doc__.partition("\n")[0], rounds=5)
    help_model = "a model, more than once if wanted (default A and W)"
    parser.add_argument("--model", action="append", choices=MODELS, help=help_model)
    options = parser.parse_args()
    return finish("precision", lambda: compare(options), as_markdown, options.out)


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Compares both precisions on every chosen model; returns everything the report shows."""
    results = {}
    for name in options.model or ["A", "W"]:
        note(f"model {name}")
        with tempfile.TemporaryDirectory(prefix="trainc-benchmark-") as folder:
            results[name] = compare_on(MODELS[name], options, Path(folder))
    return {"machine": machine.describe(), "threads": options.threads, "models": results}


def compare_on(model: Model, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Compiles, checks and measures one model."""
    job = write_job(model.config, folder, options.threads)
    contenders = {}
    for precision in PRECISIONS:
        note(f"compiling in {precision} ...")
        artifact = folder / f"{precision}.trainc"
        build.compile_samba(model.config, artifact, precision=precision)
        contenders[precision] = Contender("trainc_step", {**job, "artifact": str(artifact)})
    with started(contenders) as processes:
        losses = {name: process.run(CHECKED_STEPS)["losses"] for name, process in processes.items()}
        require_agreement(losses, "f32", TOLERATED_SHARE * losses["f32"][-1])
        turns, share = measure(processes, rounds=options.rounds, steps=model.turn_steps, warmup=2)
    tokens = model.config.batch.rows * model.config.batch.length
    figures = {name: summary(of_one, tokens) for name, of_one in turns.items()}
    ratio = {kind: figures["bf16"][kind] / figures["f32"][kind] for kind in ("median_s", "min_s")}
    return {"contenders": figures, "losses": losses, "ratio": ratio, "foreign_share": share}


def as_markdown(report: dict[str, Any]) -> str:
    """The report as Markdown."""
    cells = [
        [
            name,
            precision,
            f"{1e3 * row['median_s']:.1f}",
            f"{1e3 * row['min_s']:.1f}",
            f"{row['tokens_per_s']:,.0f}",
            f"{row['peak_rss_bytes'] / 1e6:,.0f}",
        ]
        for name, result in report["models"].items()
        for precision, row in result["contenders"].items()
    ]
    lines = [
        f"- {name}: bf16 / f32 {result['ratio']['median_s']:.3f} (medians), {result['ratio']['min_s']:.3f} (minima); "
        f"{machine.foreign_line(result['foreign_share'])}"
        for name, result in report["models"].items()
    ]
    return "\n\n".join(
        [
            machine.machine_line(report["machine"], report["threads"]),
            table(("model", "precision", "median ms", "min ms", "tokens/s", "peak RSS MB"), cells),
            "\n".join(lines),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
