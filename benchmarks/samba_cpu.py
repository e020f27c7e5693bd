"""Step time of a Samba model on the CPU: trainc against eager PyTorch, as a ratio measured in one run.

    python benchmarks/samba_cpu.py [--json FILE]

The model is examples/samba_small.toml. Every contender trains it in a process of its own from the same weights on the
same batch; they take turns, in rounds of a few steps, and wait without using a processor in between. PyTorch runs
twice, with the C library's usual allocator settings and with ones that keep freed memory, and the better one counts.

Nothing is reported unless the losses of the first steps agree: the exit status is 6 if they do not, and that of the
`trainc` command for other failures.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # so that it also runs as a plain script

from benchmarks.contenders.protocol import Process  # noqa: E402
from benchmarks.contenders.trainc_step import compile_artifact  # noqa: E402
from benchmarks.outcome import DisagreementError, finish, new_parser  # noqa: E402
from trainc.frontends.generator import Generator  # noqa: E402
from trainc.frontends.samba.config_file import SambaRunConfig, load_config  # noqa: E402
from trainc.frontends.samba.init import initial_weights  # noqa: E402

CHECKED_STEPS = 5
# Two float32 implementations of this model have been seen 2.4e-6 apart over five steps; AdamW's first steps amplify
# rounding (they divide by the gradient's own size), so other processors get a margin of about ten.
LOSS_TOLERANCE = 2.5e-5
# A contender that waits may use this much of one processor before the others' times are doubted.
IDLE_SHARE = 0.05
# Other programs may use this much of all processors before the report says that the figures are not to be quoted.
FOREIGN_SHARE = 0.05

KEEP_FREED_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str((1 << 31) - 1),
    "MALLOC_TOP_PAD_": str(256 << 20),
}
SUBJECT = "trainc"
PEERS = {"torch eager": {}, "torch eager, kept memory": KEEP_FREED_MEMORY}


def main() -> int:
    """Runs the comparison; returns the exit status."""
    options = parse_options()
    with tempfile.TemporaryDirectory(prefix="trainc-benchmark-") as folder:
        return finish("samba_cpu", lambda: compare(options, Path(folder)), as_markdown, options.json)


def parse_options() -> argparse.Namespace:
    """Reads the command line."""
    parser = new_parser(__doc__.partition("\n")[0], rounds=3)
    parser.add_argument("--config", type=Path, default=ROOT / "examples" / "samba_small.toml")
    parser.add_argument("--steps", type=int, default=10, help="steps of a turn (default 10)")
    parser.add_argument("--warmup", type=int, default=4, help="further steps before the first round (default 4)")
    return parser.parse_args()


def compare(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Compiles, checks and measures; returns everything the report shows."""
    config = load_config(options.config)
    job = write_job(config, folder, options.threads)
    note("compiling with an empty cache ...")
    compiled = compile_artifact(config, Path(job["artifact"]), folder / "cache")
    processes: dict[str, Process] = {}
    try:
        processes[SUBJECT] = Process("benchmarks.contenders.trainc_step", job, sys.executable, {})
        for name, environment in PEERS.items():
            threads = {"OMP_NUM_THREADS": str(options.threads)}
            processes[name] = Process(
                "benchmarks.contenders.torch_step", job, options.torch_python, {**threads, **environment}
            )
        note("comparing the losses of the first steps ...")
        losses = {name: process.run(CHECKED_STEPS)["losses"] for name, process in processes.items()}
        require_agreement(losses)
        rounds, foreign_share = measure(processes, options)
        facts = {name: process.facts for name, process in processes.items()}
    finally:
        for process in processes.values():
            process.close()
    require_idle(rounds)
    tokens = config.batch.rows * config.batch.length
    contenders = {name: {**summary(turns, tokens), "facts": facts[name]} for name, turns in rounds.items()}
    return {
        "machine": {"processor": processor(), "processors": os.cpu_count(), "foreign_share": foreign_share},
        "model": {**config.model.to_dict(), "parameters": config.model.parameter_count},
        "batch": {"rows": config.batch.rows, "length": config.batch.length},
        "threads": options.threads,
        "compile": compiled,
        "losses": losses,
        "contenders": contenders,
        "ratio": ratios(contenders),
    }


def write_job(config: SambaRunConfig, folder: Path, threads: int) -> dict[str, Any]:
    """Writes what all contenders start from; returns the job each one is sent."""
    weights, windows = folder / "weights.npz", folder / "windows.npy"
    np.savez(weights, **initial_weights(config.model, Generator(0)))
    shape = (config.batch.rows, config.batch.length + 1)
    np.save(windows, np.random.default_rng(0).integers(0, config.model.vocab, shape, dtype=np.int32))
    return {
        "config": config.model.to_dict(),
        "optimizer": config.optimizer.to_dict(),
        "weights": str(weights),
        "windows": str(windows),
        "artifact": str(folder / "model.trainc"),
        "threads": threads,
    }


def require_agreement(losses: dict[str, list[float]]) -> None:
    """Refuses losses that differ between contenders or do not fall.

    Raises:
        DisagreementError: Naming the contender and both sequences.
    """
    expected = losses[SUBJECT]
    for name, got in losses.items():
        if not np.allclose(got, expected, rtol=0, atol=LOSS_TOLERANCE):
            raise DisagreementError(
                f"the losses of {name} must be within {LOSS_TOLERANCE} of those of {SUBJECT}, got {got} and {expected}"
            )
    if not expected[-1] < expected[0]:
        raise DisagreementError(f"the loss should fall on a batch that is repeated, got {expected}")


def require_idle(rounds: dict[str, list[dict[str, Any]]]) -> None:
    """Refuses a measurement during which a waiting contender was busy.

    Raises:
        RuntimeError: Naming the contender.
    """
    busy_s = {name: sum(sum(turn["times_s"]) for turn in turns) for name, turns in rounds.items()}
    for name, turns in rounds.items():
        waited_s = sum(busy_s.values()) - busy_s[name]
        used_s = sum(turn["idle_cpu_s"] for turn in turns)
        if used_s > IDLE_SHARE * waited_s:
            raise RuntimeError(f"{name} used {used_s:.1f} s of processor time while it waited for {waited_s:.1f} s")


def measure(
    processes: dict[str, Process], options: argparse.Namespace
) -> tuple[dict[str, list[dict[str, Any]]], float | None]:
    """Lets the contenders take turns, a different one first in each round.

    Returns:
        Every contender's turns, and the share of all processors that other programs used meanwhile, if that is known.
    """
    for process in processes.values():
        process.run(options.warmup)
    names = list(processes)
    turns: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    start_s, busy_s = time.monotonic(), busy_time_s()
    for number in range(options.rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            turns[name].append(processes[name].run(options.steps))
        latest = ", ".join(f"{name} {1e3 * min(turns[name][-1]['times_s']):.0f} ms" for name in names)
        note(f"round {number + 1} of {options.rounds}: {latest}")
    if busy_s is None:
        return turns, None
    ours_s = sum(turn["cpu_s"] for of_one in turns.values() for turn in of_one)
    foreign_s = busy_time_s() - busy_s - ours_s
    return turns, max(0.0, foreign_s / (time.monotonic() - start_s) / os.cpu_count())


def busy_time_s() -> float | None:
    """Time that all processors together have worked since the system started; None where the system does not say."""
    try:
        ticks = [int(field) for field in Path("/proc/stat").read_text(encoding="ascii").split("\n")[0].split()[1:9]]
    except OSError:
        return None
    user, nice, system, _idle, _iowait, irq, softirq, steal = ticks
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def summary(turns: list[dict[str, Any]], tokens: int) -> dict[str, Any]:
    """The figures of one contender."""
    times_s = [time_s for turn in turns for time_s in turn["times_s"]]
    return {
        "median_s": statistics.median(times_s),
        "min_s": min(times_s),
        "cpu_s_per_step": min(turn["cpu_s"] / len(turn["times_s"]) for turn in turns),
        "tokens_per_s": tokens / statistics.median(times_s),
        "peak_rss_bytes": max(turn["peak_rss_bytes"] for turn in turns),
        "round_median_s": [statistics.median(turn["times_s"]) for turn in turns],
        "round_min_s": [min(turn["times_s"]) for turn in turns],
    }


def ratios(contenders: dict[str, Any]) -> dict[str, float]:
    """Step time of the subject over that of the best peer, for medians and for minima."""
    subject = contenders[SUBJECT]
    return {
        kind: subject[f"{kind}_s"] / min(contenders[name][f"{kind}_s"] for name in PEERS) for kind in ("median", "min")
    }


def as_markdown(report: dict[str, Any]) -> str:
    """The report as Markdown."""
    model, batch, machine = report["model"], report["batch"], report["machine"]
    lines = [
        f"Samba with {model['parameters'] / 1e6:.2f} M parameters ({', '.join(model['layers'])}; d_model "
        f"{model['d_model']}, vocabulary {model['vocab']}), batch {batch['rows']} x {batch['length']}, float32,",
        f"{report['threads']} threads on {machine['processor']} with {machine['processors']} processors",
        "",
        "| contender | median ms | min ms | CPU ms | tokens/s | peak RSS MB |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in report["contenders"].items():
        lines.append(
            f"| {name} ({row['facts']['version']}) | {1e3 * row['median_s']:.1f} | {1e3 * row['min_s']:.1f} "
            f"| {1e3 * row['cpu_s_per_step']:.1f} | {row['tokens_per_s']:.0f} | {row['peak_rss_bytes'] / 1e6:.0f} |"
        )
    ratio, compiled, losses = report["ratio"], report["compile"], report["losses"]
    apart = max(np.ptp(step) for step in zip(*losses.values(), strict=True))
    return "\n".join(
        [
            *lines,
            "",
            f"- step time, {SUBJECT} / the better torch: {ratio['median']:.3f} (medians), {ratio['min']:.3f} (minima)",
            f"- compiling: {compiled['step_s']:.1f} s for gradients and update, {compiled['artifact_s']:.1f} s for all",
            f"- losses of the first {CHECKED_STEPS} steps: {' '.join(f'{loss:.6f}' for loss in losses[SUBJECT])}, "
            f"at most {apart:.1e} apart",
            f"- {foreign_line(machine['foreign_share'])}",
        ]
    )


def foreign_line(share: float | None) -> str:
    """What is to be said of other programs' work during the measurement."""
    if share is None:
        return "how busy the machine was otherwise is not known"
    line = f"other programs used {100 * share:.0f}% of the processors"
    if share > FOREIGN_SHARE:
        line += ": do not quote these figures (contention slows torch more, whose threads spin while they wait)"
    return line


def processor() -> str:
    """Name of the processor, as far as the system says."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def note(text: str) -> None:
    """Progress, to standard error."""
    print(f"samba_cpu: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
