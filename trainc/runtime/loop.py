"""The one training loop: data, steps, metrics, checkpoints, resuming, and stopping in order."""

import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from trainc.core.errors import CheckpointError, Interrupted, UsageError
from trainc.runtime.checkpoint import read_checkpoint
from trainc.runtime.checkpoint_store import CheckpointStore
from trainc.runtime.data import Batches, Windows
from trainc.runtime.driver import RandomState
from trainc.runtime.identity import identity, progress
from trainc.runtime.metrics import FILE, MetricsWriter
from trainc.runtime.signals import StopRequest
from trainc.runtime.step import StepResult, TrainStep

Metrics = Mapping[str, object]


class Callback(Protocol):
    """Follows a run."""

    def begin(self, title: str, total_steps: int, done_steps: int = 0) -> None:
        """The run starts, at `done_steps` of `total_steps`."""

    def step(self, step: int, metrics: Metrics) -> None:
        """A step was taken."""

    def note(self, text: str) -> None:
        """Something happened that a person may want to know."""

    def end(self) -> None:
        """The run ended, also by an error."""


class Silent:
    """A callback that does nothing."""

    def begin(self, title: str, total_steps: int, done_steps: int = 0) -> None:
        """Does nothing."""

    def step(self, step: int, metrics: Metrics) -> None:
        """Does nothing."""

    def note(self, text: str) -> None:
        """Does nothing."""

    def end(self) -> None:
        """Does nothing."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How to run.

    Attributes:
        out: The run's folder: `metrics.jsonl` and `checkpoints/`.
        steps: The step the run ends after, counted from the very start, also when it is resumed.
        checkpoint_every: Write a checkpoint each time this many steps were taken; None only at the end.
        keep: Checkpoints to keep.
        resume: Go on from the folder's latest checkpoint, if there is one.
        seed: Of weights, dropout and data order; None is 0, or what the resumed run has.
    """

    out: Path
    steps: int
    checkpoint_every: int | None = None
    keep: int = 3
    resume: bool = False
    seed: int | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "checkpoint_every", "keep"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, got {value}")


@dataclass(frozen=True)
class RunReport:
    """How a run ended.

    Attributes:
        first_step: Steps that were done before.
        step: Steps done now.
        last: The last step's result; None if there was nothing left to do.
        checkpoint: The checkpoint of the end.
    """

    first_step: int
    step: int
    last: StepResult | None
    checkpoint: Path


def train(trainer: TrainStep, windows: Windows, options: RunOptions, callback: Callback | None = None) -> RunReport:
    """Train up to a step.

    On SIGINT and SIGTERM the step under way is finished and a checkpoint written; a second signal ends the process.

    Args:
        trainer: Takes the steps.
        windows: The data to train on.
        options: How to run.
        callback: Follows the run.

    Raises:
        UsageError: The folder holds a run and `resume` was not asked for, another process is running there, or the
            seed is not that of the run.
        CheckpointError: A checkpoint cannot be written, or the one to resume from is damaged or does not fit.
        DataError: The data is not that of the run.
        NumericsError: A loss or gradient is not finite; the last checkpoint is as it was.
        Interrupted: A signal came; its checkpoint is written.
    """
    return _Run(trainer, windows, options, callback or Silent()).run()


def run_state(trainer: TrainStep, data: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a checkpoint holds beside its tensors.

    Args:
        trainer: Has the settings and the state.
        data: Where in the data the run stands; None if that is kept elsewhere.
    """
    return {**run_identity(trainer), **progress(trainer.state, data)}


def run_identity(trainer: TrainStep) -> dict[str, Any]:
    """The part of `run_state` that must be equal for a checkpoint to be continued."""
    manifest, driver = trainer.program.manifest, trainer.driver
    return identity(
        kind=manifest.kind,
        config=manifest.config,
        numeric_mode=manifest.numeric_mode,
        precision=manifest.precision,
        batch={"rows": driver.rows, "length": driver.length, "accumulation_steps": driver.accumulation_steps},
        trainer=trainer,
    )


class _Run:
    def __init__(self, trainer: TrainStep, windows: Windows, options: RunOptions, callback: Callback) -> None:
        self._trainer, self._options, self._callback = trainer, options, callback
        self._store = CheckpointStore(options.out, options.keep)
        self._batches = Batches(windows, options.seed or 0)
        self._saved_step: int | None = None

    def run(self) -> RunReport:
        found = self._start()
        with self._store.hold():
            if self._store.latest() != found:
                raise UsageError(f"another run has just written to {self._options.out}; resume it, or wait for its end")
            return self._train()

    def _train(self) -> RunReport:
        options, state = self._options, self._trainer.state
        first, last = state.step, None
        if first > options.steps:
            raise UsageError(
                f"{options.out} is at step {first} already; steps must be at least that, got {options.steps}"
            )
        self._callback.begin("train", options.steps, first)
        try:
            with StopRequest() as stop, MetricsWriter(options.out / FILE, first) as metrics:
                while state.step < options.steps and stop.signal is None:
                    last = self._step(metrics)
                    if options.checkpoint_every and state.step % options.checkpoint_every == 0:
                        self._save(metrics)
                path = self._save(metrics)
        finally:
            self._callback.end()
        if stop.signal is not None and state.step < options.steps:
            raise Interrupted(
                f"stopped by {stop.signal.name} after step {state.step}; {path} is written; resume to go on"
            )
        return RunReport(first, state.step, last, path)

    def _start(self) -> Path | None:
        """Make the state the run begins with; return the checkpoint it comes from."""
        options, trainer = self._options, self._trainer
        found = self._store.latest()
        if found is not None and not options.resume:
            raise UsageError(
                f"{options.out} holds a run already ({found.name}); resume it, or give another folder for a new run"
            )
        if found is not None:
            self._resume(found)
        else:
            if options.resume:
                self._callback.note(f"{options.out} holds no checkpoint: starting at the first step")
            parameters, random = trainer.driver.initial_parameters(options.seed or 0)
            trainer.state.start(parameters, random)
        self._store.open_for_writing()
        return found

    def _resume(self, path: Path) -> None:
        trainer, seed = self._trainer, self._options.seed
        checkpoint = read_checkpoint(path)
        checkpoint.require_table(trainer.state.table)
        checkpoint.require(run_identity(trainer))
        state = checkpoint.state
        random = RandomState(**state["generator"])
        if seed is not None and seed != random.seed:
            raise UsageError(f"the run in {self._options.out} has seed {random.seed}, got {seed}; leave the seed out")
        if state.get("data") is None:
            raise CheckpointError(f"{path} was not written by a training loop: it has no data position to go on from")
        self._batches.seed = random.seed
        self._batches.restore(state["data"])
        trainer.state.restore(checkpoint.parameters, checkpoint.m, checkpoint.v, state["step"], random)
        self._saved_step = trainer.state.step
        self._callback.note(f"resumed from {path} at step {trainer.state.step}")

    def _step(self, metrics: MetricsWriter) -> StepResult:
        start_s = time.perf_counter()
        driver = self._trainer.driver
        result = self._trainer.run(driver.inputs(self._batches.next(driver.rows)))
        elapsed_s = time.perf_counter() - start_s
        row = {
            "step": result.step,
            "train/loss": result.loss,
            "train/grad_norm": result.grad_norm,
            "train/lr": result.lr,
            "perf/tokens_per_s": round(result.tokens / elapsed_s, 1),
            "mem/peak_bytes": peak_memory_bytes(),
        }
        metrics.write(row)
        self._callback.step(result.step, row)
        return result

    def _save(self, metrics: MetricsWriter) -> Path:
        state = self._trainer.state
        if self._saved_step == state.step:
            return self._store.path_of(state.step)
        metrics.sync()
        path = self._store.save(
            state.step,
            state.params.views(),
            state.m.views(),
            state.v.views(),
            run_state(self._trainer, self._batches.state()),
        )
        self._saved_step = state.step
        return path


def peak_memory_bytes() -> int:
    """The most memory this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
