"""The one training step: microbatches, their sum, the check for finite values, clipping and the update."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trainc.core import checks
from trainc.core.accumulation import additions_after, is_power_of_two
from trainc.core.adamw import AdamWSettings, clip_factor, coefficients
from trainc.core.errors import ArtifactError, ConfigError, NumericsError
from trainc.core.schedules import schedule_from_config
from trainc.runtime.allocator import give_back_freed_memory
from trainc.runtime.buffers import FlatBuffer
from trainc.runtime.driver import BoundStep, Driver, Inputs, RandomState
from trainc.runtime.losses import total_loss
from trainc.runtime.norms import GradientNorms, combine
from trainc.runtime.program import Program, Results
from trainc.runtime.state import TABLE, TrainState

_FLOAT32_MAX = float(np.finfo(np.float32).max)


class LearningRates(Protocol):
    """A schedule: the learning rate of each step, counted from one."""

    def lr_at(self, t: int, /) -> float:
        """The learning rate of step `t`."""


@dataclass(frozen=True)
class StepResult:
    """What one step did.

    Attributes:
        step: Its number, counted from one.
        loss: Mean loss over the targets that count, before the update.
        lr: Learning rate, a float32 value.
        grad_norm: Global norm of the gradient before clipping.
        clip: Factor the gradient was multiplied by.
        tokens: Tokens of the batch.
        ignored_all: No target counted: the loss is 0 and the gradient zero.
    """

    step: int
    loss: float
    lr: float
    grad_norm: float
    clip: float
    tokens: int
    ignored_all: bool


class Entries(Protocol):
    """The entries of one model, however many compiled programs they come from."""

    def call(self, name: str, arguments: Mapping[str, object], /) -> Results:
        """Run an entry; see `Program.call`."""

    def new_state(self, table: str, name: str | None = None, /) -> FlatBuffer:
        """A new buffer of zeros; see `Program.new_state`."""


class Binder(Protocol):
    """The part of a driver that a step needs."""

    @property
    def accumulation_steps(self) -> int:
        """Microbatches of one training batch, a power of two."""

    def bind_step(self, inputs: Inputs, random: RandomState, /) -> BoundStep:
        """Cut a training batch into microbatches."""


class Stepper:
    """Takes training steps. A step either completes or raises and leaves the state as it was.

    Args:
        entries: `gradients`, `accumulate`, `norms` and `update`.
        binder: Cuts batches into microbatches.
        state: The state to train.
        optimizer: Optimizer settings.
        schedule: Learning rates; None is a constant `optimizer.lr`.

    Attributes:
        state: As given.
        optimizer: As given; the next step reads it.
        schedule: As given; the next step reads it.

    Raises:
        ConfigError: The number of microbatches is no power of two.
    """

    def __init__(
        self,
        entries: Entries,
        binder: Binder,
        state: TrainState,
        optimizer: AdamWSettings,
        schedule: LearningRates | None = None,
    ) -> None:
        if not is_power_of_two(binder.accumulation_steps):
            raise ConfigError(f"accumulation_steps must be a power of two, got {binder.accumulation_steps}")
        self.state, self.optimizer, self.schedule = state, optimizer, schedule
        self._entries, self._binder = entries, binder
        self._free: list[FlatBuffer] = []

    def lr_at(self, step: int) -> float:
        """Learning rate of a step, counted from one: a float32 value.

        Raises:
            ConfigError: The schedule gave something else than a finite number of at least 0.
        """
        if self.schedule is None:
            return self.optimizer.lr
        return checks.float32_at_least_0(f"the schedule's rate of step {step}", self.schedule.lr_at(step))

    def run(self, inputs: Inputs) -> StepResult:
        """Take one step.

        Args:
            inputs: One training batch, as the driver takes it.

        Raises:
            NumericsError: The loss or a gradient is not finite; the message names the first such tensor.
            UsageError: The inputs do not fit.
            ConfigError: The schedule gave an impossible rate.
        """
        state, number = self.state, self.state.step + 1
        bound = self._binder.bind_step(inputs, state.random)
        loss, grads = self._gradients(bound)
        try:
            norms = self.norms(grads)
            self._require_finite(number, loss, norms)
            lr, total = self.lr_at(number), norms.total
            clip = clip_factor(min(total, _FLOAT32_MAX), self.optimizer.max_norm)
            scalars = coefficients(self.optimizer, lr, number, float(clip))
            buffers = {"params": state.params, "m": state.m, "v": state.v, "grads": grads}
            self._entries.call("update", {**buffers, **scalars})
        finally:
            self._free.append(grads)
        state.step, state.random = number, bound.random
        return StepResult(number, loss, lr, total, float(clip), bound.tokens, bound.ignored_all)

    def gradients(self, inputs: Inputs) -> tuple[float, FlatBuffer]:
        """The loss and gradient that `run` would use, without taking the step.

        Returns:
            The mean loss, and the gradient in a buffer that the next call of this object may reuse.
        """
        return self.gradients_of(self._binder.bind_step(inputs, self.state.random))

    def gradients_of(self, bound: BoundStep) -> tuple[float, FlatBuffer]:
        """The summed losses and gradients of calls that are bound already; see `gradients`."""
        loss, grads = self._gradients(bound)
        self._free.append(grads)
        return loss, grads

    def norms(self, grads: FlatBuffer) -> GradientNorms:
        """Norms of a gradient's tensors."""
        parts = self._entries.call("norms", {"grads": grads})
        return combine(grads.table, parts["block_max"], parts["block_sumsq"])

    def _gradients(self, bound: BoundStep) -> tuple[float, FlatBuffer]:
        """Run the microbatches and add them by a balanced tree over adjacent pairs.

        At most log2(microbatches) + 1 gradient buffers are in use; they are kept for the next step.
        """
        sums: list[tuple[float, FlatBuffer]] = []
        try:
            for index, call in enumerate(bound.calls):
                grads = self._free.pop() if self._free else self._new_gradients()
                sums.append((0.0, grads))
                results = self._entries.call("gradients", {"params": self.state.params, "grads": grads, **call})
                sums[-1] = (total_loss(results["loss"]), grads)
                for _ in range(additions_after(index)):
                    self._add_last_two(sums)
        except BaseException:
            self._free.extend(grads for _, grads in sums)
            raise
        return sums[0]

    def _new_gradients(self) -> FlatBuffer:
        give_back_freed_memory()  # loading the weights freed pieces that a step's own memory does not fit into
        return self._entries.new_state(TABLE, "grads")

    def _add_last_two(self, sums: list[tuple[float, FlatBuffer]]) -> None:
        (loss, grads), (later_loss, later_grads) = sums[-2:]
        self._entries.call("accumulate", {"grads": grads, "accum": later_grads})
        sums[-2] = (loss + later_loss, grads)
        self._free.append(sums.pop()[1])

    def _require_finite(self, number: int, loss: float, norms: GradientNorms) -> None:
        gradient = norms.first_not_finite
        if math.isfinite(loss) and gradient is None:
            return
        views = self.state.params.views()
        weight = next((name for name, view in views.items() if not np.isfinite(view).all()), None)
        what = f"the loss is {loss}" if not math.isfinite(loss) else "the loss is finite"
        if weight is not None:
            what += f"; the first weight that is not finite is {weight!r}"
        if gradient is not None:
            what += f"; the first gradient that is not finite is that of {gradient!r}"
        raise NumericsError(
            f"step {number}: {what}; the step was not taken and nothing changed; a lower learning rate, a longer "
            "warmup or clipping (max_norm) may help"
        )


class TrainStep(Stepper):
    """Takes training steps with an artifact.

    Args:
        program: The artifact on a device.
        driver: The driver of the artifact's kind.
        state: The state to train; None makes a new one, zero.
        schedule: Learning rates; None follows the artifact's settings.

    Attributes:
        program: As given.
        driver: As given.
        state: The state that is trained.
        optimizer: The artifact's optimizer settings.
        schedule: The learning rates; None is a constant `optimizer.lr`.

    Raises:
        ArtifactError: The artifact is of another kind than the driver, has no optimizer settings, or has impossible
            ones of optimizer or schedule.
        ConfigError: The number of microbatches is no power of two.
    """

    def __init__(
        self,
        program: Program,
        driver: Driver,
        state: TrainState | None = None,
        schedule: LearningRates | None = None,
    ) -> None:
        settings = program.manifest.settings
        if program.manifest.kind != driver.kind:
            raise ArtifactError(f"the artifact is of kind {program.manifest.kind!r}, the driver of {driver.kind!r}")
        if not isinstance(settings.get("optimizer"), dict):
            raise ArtifactError("manifest: settings.optimizer is missing; compile the artifact again")
        try:
            optimizer = AdamWSettings(**settings["optimizer"])
        except TypeError as error:
            raise ArtifactError(f"manifest: settings.optimizer has an unknown field: {error}") from error
        except ConfigError as error:
            raise ArtifactError(f"manifest: settings.optimizer.{error}") from error
        rates = schedule or _schedule(settings.get("schedule"))
        super().__init__(program, driver, state or TrainState(program), optimizer, rates)
        self.program, self.driver = program, driver


def _schedule(settings: object) -> LearningRates | None:
    """The schedule that a manifest describes; null is none."""
    if settings is None:
        return None
    if not isinstance(settings, dict):
        raise ArtifactError(f"manifest: settings.schedule must be an object or null, got {settings!r:.60}")
    try:
        return schedule_from_config(settings)
    except ConfigError as error:
        raise ArtifactError(f"manifest: settings.schedule.{error}") from error
