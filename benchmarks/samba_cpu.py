"""Step time of Samba models on the CPU: trainc against PyTorch, JAX and mojolearn, as ratios measured in one run.

    python benchmarks/samba_cpu.py [--model NAME ...] [--peer NAME ...] [--out FOLDER]

The models are those of benchmarks/models.py. Every contender trains one in a process of its own from the same weights
on the same batch; they take turns, in rounds of a few steps, and wait without using a processor in between. PyTorch,
eager and compiled, and JAX run twice, with the C library's usual allocator settings and with ones that keep freed
memory, and the better one counts. Whatever is compiled is compiled anew, without any cache.

Nothing is reported unless the losses of the first steps agree: the exit status is 6 if they do not, and that of the
`trainc` command for other failures. --out writes the figures as JSON, the tables as Markdown and a plot.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # so that it also runs as a plain script

from benchmarks import machine, step_plot, step_report
from benchmarks.contenders.trainc_step import compile_artifact
from benchmarks.models import MODELS, Model
from benchmarks.outcome import finish, new_parser
from benchmarks.rounds import Contender, measure, note, started, summary
from benchmarks.training import ALLOCATORS, CHECKED_STEPS, require_same_training, write_job

SUBJECT = "trainc"


@dataclass(frozen=True)
class Peer:
    """Something that trainc is compared with.

    Attributes:
        module: Its contender.
        job: What that is given beside what all are given.
        allocators: The allocator settings it runs with, by what is added to its name.
        models: Names of the models it runs.
        compiles: Whether its first step compiles.
    """

    module: str
    job: dict[str, Any] = field(default_factory=dict)
    allocators: dict[str, dict[str, str]] = field(default_factory=lambda: ALLOCATORS)
    models: tuple[str, ...] = tuple(MODELS)
    compiles: bool = False


PEERS = {
    "torch.compile": Peer("torch_step", {"compiled": True}, compiles=True),
    "torch eager": Peer("torch_step", {"compiled": False}),
    "JAX": Peer("jax_step", compiles=True),
    # One step takes it some 7 s, most of it arithmetic on one core: allocator settings are nothing beside that.
    "mojolearn": Peer("mojolearn_step", allocators={"": {}}, models=("S",)),
}


def main() -> int:
    """Runs the comparison; returns the exit status."""
    options = parse_options()
    return finish("samba_cpu", lambda: compare(options), step_report.as_markdown, options.out, step_plot.draw)


def parse_options() -> argparse.Namespace:
    """Reads the command line."""
    parser = new_parser(__doc__.partition("\n")[0], rounds=5)
    parser.add_argument(
        "--model", action="append", choices=MODELS, help="a model, more than once if wanted (default S)"
    )
    parser.add_argument("--peer", action="append", choices=PEERS, help="a peer, more than once if wanted (default all)")
    parser.add_argument("--steps", type=int, help="steps of a turn (default: 4; 60 for T)")
    parser.add_argument("--warmup", type=int, default=2, help="further steps before the first round (default 2)")
    return parser.parse_args()


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Compares the contenders on every chosen model; returns everything the report shows."""
    results = {}
    for name in options.model or ["S"]:
        peers = {title: peer for title, peer in PEERS.items() if not options.peer or title in options.peer}
        peers = {title: peer for title, peer in peers.items() if name in peer.models}
        note(f"model {name}")
        with tempfile.TemporaryDirectory(prefix="trainc-benchmark-") as folder:
            results[name] = compare_on(MODELS[name], peers, options, Path(folder))
    return {"machine": machine.describe(), "threads": options.threads, "subject": SUBJECT, "models": results}


def compare_on(model: Model, peers: dict[str, Peer], options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Compiles, checks and measures one model."""
    config = model.config
    job = write_job(config, folder, options.threads)
    note("compiling with an empty cache ...")
    compiled = compile_artifact(config, Path(job["artifact"]), folder / "cache")
    contenders = {SUBJECT: Contender("trainc_step", job), **peer_contenders(peers, job, options, folder)}
    with started(contenders) as processes:
        note("comparing the losses of the first steps ...")
        first = {name: process.run(CHECKED_STEPS) for name, process in processes.items()}
        losses = {name: answer["losses"] for name, answer in first.items()}
        require_same_training(losses, SUBJECT)
        steps = options.steps or model.turn_steps
        turns, foreign_share = measure(processes, rounds=options.rounds, steps=steps, warmup=options.warmup)
        facts = {name: process.facts for name, process in processes.items()}
    tokens = config.batch.rows * config.batch.length
    rows = {name: {**summary(of_one, tokens), "facts": facts[name]} for name, of_one in turns.items()}
    compiling = {name for title, peer in peers.items() if peer.compiles for name in peer_names(title, peer)}
    for name, row in rows.items():
        first_s = first[name]["times_s"][0]
        row["compile_s"] = max(0.0, first_s - row["median_s"]) if name in compiling else None
        row["first_step_s"] = facts[name]["setup_s"] + first_s
    rows[SUBJECT]["compile_s"] = compiled["step_s"]
    rows[SUBJECT]["first_step_s"] += compiled["step_s"]
    return {
        "model": {**config.model.to_dict(), "parameters": config.model.parameter_count},
        "batch": {"rows": config.batch.rows, "length": config.batch.length},
        "foreign_share": foreign_share,
        "compile_all_s": compiled["artifact_s"],
        "losses": losses,
        "contenders": rows,
        "ratios": {name: ratio(rows, peer_names(name, peer)) for name, peer in peers.items()},
    }


def peer_names(name: str, peer: Peer) -> list[str]:
    """Names of a peer's contenders, one for each allocator setting."""
    return [name + addition for addition in peer.allocators]


def peer_contenders(
    peers: dict[str, Peer], job: dict[str, Any], options: argparse.Namespace, folder: Path
) -> dict[str, Contender]:
    """The contenders of some peers, each with a compile cache of its own that is empty."""
    contenders = {}
    for name, peer in peers.items():
        for contender, allocator in zip(peer_names(name, peer), peer.allocators.values(), strict=True):
            environment = {
                "OMP_NUM_THREADS": str(options.threads),
                "NPROC": str(options.threads),  # what JAX takes as the number of processors
                "JAX_PLATFORMS": "cpu",
                "TORCHINDUCTOR_CACHE_DIR": str(folder / f"inductor-{len(contenders)}"),
                **allocator,
            }
            contenders[contender] = Contender(peer.module, {**job, **peer.job}, options.peer_python, environment)
    return contenders


def ratio(rows: dict[str, Any], names: list[str]) -> dict[str, float]:
    """Step time of the subject over that of the best of some contenders, for medians and for minima."""
    subject = rows[SUBJECT]
    return {kind: subject[f"{kind}_s"] / min(rows[name][f"{kind}_s"] for name in names) for kind in ("median", "min")}


if __name__ == "__main__":
    sys.exit(main())
