"""Contenders that take turns, each in its own process: none measured before all agree, none busy while it waits."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.contenders.protocol import Process
from benchmarks.machine import ForeignLoad
from benchmarks.outcome import DisagreementError

# A contender that waits may use this much of one processor before the others' times are doubted.
IDLE_SHARE = 0.05
# And this much in each turn, to read the question and write the answer.
IDLE_PER_TURN_S = 0.005

Turns = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class Contender:
    """How a contender's process is started.

    Attributes:
        module: Its module in benchmarks/contenders.
        job: What it is given.
        python: The interpreter that runs it.
        environment: Variables to set in addition.
    """

    module: str
    job: Mapping[str, Any]
    python: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def started(contenders: Mapping[str, Contender]) -> Iterator[dict[str, Process]]:
    """Starts every contender, and ends them all with the context.

    Raises:
        RuntimeError: A contender ended before it was ready.
    """
    processes: dict[str, Process] = {}
    try:
        for name, entry in contenders.items():
            note(f"starting {name} ...")
            module = f"benchmarks.contenders.{entry.module}"
            processes[name] = Process(module, entry.job, entry.python, entry.environment)
        yield processes
    finally:
        for process in processes.values():
            process.close()


def measure(processes: Mapping[str, Process], *, rounds: int, steps: int, warmup: int) -> tuple[Turns, float | None]:
    """Lets the contenders take turns, a different one first in each round.

    Args:
        processes: Contenders that have agreed.
        rounds: Rounds; each contender has one turn in each.
        steps: Steps of a turn.
        warmup: Steps of each before the first round.

    Returns:
        Every contender's turns, and the share of all processors that other programs used meanwhile, if that is known.

    Raises:
        RuntimeError: A contender used a processor while it waited.
    """
    for process in processes.values():
        process.run(warmup)
    names = list(processes)
    turns: Turns = {name: [] for name in names}
    load = ForeignLoad()
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            turns[name].append(processes[name].run(steps))
        latest = ", ".join(f"{name} {1e3 * min(turns[name][-1]['times_s']):.2f} ms" for name in names)
        note(f"round {number + 1} of {rounds}: {latest}")
    foreign_share = load.share(sum(turn["cpu_s"] for of_one in turns.values() for turn in of_one))
    require_idle(turns)
    return turns, foreign_share


def require_agreement(answers: Mapping[str, list[float]], subject: str, tolerance: float) -> None:
    """Refuses answers that differ between contenders.

    Args:
        answers: Of each contender, one a step.
        subject: The contender that the others are compared with.
        tolerance: How far they may be apart.

    Raises:
        DisagreementError: Naming the contender and both sequences.
    """
    expected = answers[subject]
    for name, got in answers.items():
        if not np.allclose(got, expected, rtol=0, atol=tolerance):
            raise DisagreementError(
                f"the answers of {name} must be within {tolerance} of those of {subject}, got {got} and {expected}"
            )


def require_idle(turns: Turns) -> None:
    """Refuses a measurement during which a waiting contender was busy.

    Raises:
        RuntimeError: Naming the contender.
    """
    busy_s = {name: sum(sum(turn["times_s"]) for turn in of_one) for name, of_one in turns.items()}
    for name, of_one in turns.items():
        waited_s = sum(busy_s.values()) - busy_s[name]
        used_s = sum(turn["idle_cpu_s"] for turn in of_one)
        if used_s > IDLE_SHARE * waited_s + IDLE_PER_TURN_S * len(of_one):
            raise RuntimeError(f"{name} used {used_s:.1f} s of processor time while it waited for {waited_s:.1f} s")


def summary(turns: list[dict[str, Any]], tokens: int) -> dict[str, Any]:
    """The figures of one contender.

    Args:
        turns: Its turns.
        tokens: Tokens of one step.
    """
    times_s = [time_s for turn in turns for time_s in turn["times_s"]]
    return {
        "median_s": statistics.median(times_s),
        "min_s": min(times_s),
        "steps": len(times_s),
        "cpu_s_per_step": min(turn["cpu_s"] / len(turn["times_s"]) for turn in turns),
        "tokens_per_s": tokens / statistics.median(times_s),
        "peak_rss_bytes": max(turn["peak_rss_bytes"] for turn in turns),
        "round_median_s": [statistics.median(turn["times_s"]) for turn in turns],
        "round_min_s": [min(turn["times_s"]) for turn in turns],
    }


def note(text: str) -> None:
    """Progress, to standard error."""
    print(f"benchmark: {text}", file=sys.stderr, flush=True)
