"""How fast an artifact is: training steps on made-up data, each entry timed, and decoding."""

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from trainc.runtime.buffers import FlatBuffer
from trainc.runtime.decode import Decoder
from trainc.runtime.driver import Driver
from trainc.runtime.program import Program, Results
from trainc.runtime.step import Stepper, StepResult, TrainStep

WARM_UP_STEPS = 2
"""Steps before the first that counts: they load modules and touch memory for the first time."""

_SEED = 0


class StepCallback(Protocol):
    """Told of each step that counts."""

    def __call__(self, step: int, result: StepResult, time_s: float, /) -> None:
        """Step number `step`, counted from one, is done."""


@dataclass(frozen=True)
class Times:
    """Durations of the same thing, measured again and again.

    Attributes:
        calls: How often it happens in one step.
        seconds: Its time in each step, all calls together.
    """

    calls: int
    seconds: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """Median."""
        return statistics.median(self.seconds)

    @property
    def min_s(self) -> float:
        """Minimum."""
        return min(self.seconds)


@dataclass(frozen=True)
class Call:
    """One call of an entry, as it can be made again.

    Attributes:
        entry: The entry.
        calls: How often a step calls it.
        arguments: Its arguments by name.
    """

    entry: str
    calls: int
    arguments: Mapping[str, object]


@dataclass(frozen=True)
class StepTimes:
    """What training steps took.

    Attributes:
        step: Whole steps.
        entries: Parts of them by entry, and `host`, which is the rest.
        tokens: Tokens of one step.
        calls: One call of each entry of a step, with the arguments of the last.
    """

    step: Times
    entries: dict[str, Times]
    tokens: int
    calls: tuple[Call, ...] = field(repr=False)


class _TimedEntries:
    """The entries of a program, with a clock and the arguments of each one's last call."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.arguments: dict[str, Mapping[str, object]] = {}
        self.times: dict[str, list[float]] = {}

    def call(self, name: str, arguments: Mapping[str, object], /) -> Results:
        start = time.perf_counter()
        results = self._program.call(name, arguments)
        self.times.setdefault(name, []).append(time.perf_counter() - start)
        self.arguments[name] = arguments
        return results

    def new_state(self, table: str, name: str | None = None, /) -> FlatBuffer:
        return self._program.new_state(table, name)


def time_steps(program: Program, driver: Driver, steps: int, on_step: StepCallback | None = None) -> StepTimes:
    """Train on random bytes from fresh weights and time it.

    Args:
        program: The artifact on a device.
        driver: The driver of the artifact's kind.
        steps: Steps that count; a few more come before.
        on_step: Told of each.
    """
    trainer = TrainStep(program, driver)
    trainer.state.start(*driver.initial_parameters(_SEED))
    entries = _TimedEntries(program)
    stepper = Stepper(entries, driver, trainer.state, trainer.optimizer, trainer.schedule)
    windows = np.random.default_rng(_SEED).integers(
        0, min(driver.vocab, 256), (driver.rows, driver.length + 1), np.uint8, endpoint=False
    )
    inputs = driver.inputs(windows)
    whole: list[float] = []
    parts: dict[str, list[float]] = {}
    for number in range(1 - WARM_UP_STEPS, steps + 1):
        entries.times.clear()
        start = time.perf_counter()
        result = stepper.run(inputs)
        elapsed_s = time.perf_counter() - start
        if number < 1:
            continue
        whole.append(elapsed_s)
        spent = {name: sum(times) for name, times in entries.times.items()}
        for name, seconds in {**spent, "host": elapsed_s - sum(spent.values())}.items():
            parts.setdefault(name, []).append(seconds)
        if on_step is not None:
            on_step(number, result, elapsed_s)
    counts = {name: len(times) for name, times in entries.times.items()}
    return StepTimes(
        Times(1, tuple(whole)),
        {name: Times(counts.get(name, 1), tuple(seconds)) for name, seconds in parts.items()},
        driver.rows * driver.length,
        tuple(Call(name, counts[name], arguments) for name, arguments in entries.arguments.items()),
    )


def time_decoding(program: Program, driver: Driver, tokens: int) -> tuple[int, Times] | None:
    """Decode token after token from fresh weights and time each.

    Args:
        program: The artifact on a device.
        driver: The driver of the artifact's kind.
        tokens: Tokens that count; fewer if the artifact is compiled for shorter sequences.

    Returns:
        The rows that decode side by side, and the times of one token a row; None if the artifact cannot decode.
    """
    if "decode" not in program.manifest.entries:
        return None
    params = program.new_state("params", "params")
    params.write(driver.initial_parameters(_SEED)[0])
    decoder = Decoder(program, params)
    ids = np.zeros((decoder.rows, 1), np.int32)
    seconds = []
    for _ in range(min(tokens + WARM_UP_STEPS, decoder.max_tokens)):
        start = time.perf_counter()
        decoder.feed(ids)
        seconds.append(time.perf_counter() - start)
    return decoder.rows, Times(1, tuple(seconds[WARM_UP_STEPS:] or seconds))
