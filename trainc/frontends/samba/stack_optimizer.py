"""The optimizer of a SambaStack: a view of the AdamW state that lives with the stack's parameters."""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.runtime.buffers import FlatBuffer
from trainc.runtime.step import LearningRates, Stepper


class StackOptimizer:
    """AdamW over the parameters of one stack; the stack's `train_step` takes its steps.

    Args:
        stepper: Takes the steps.
        accumulation_steps: Microbatches of a step.

    Attributes:
        accumulation_steps: As given.
    """

    def __init__(self, stepper: Stepper, accumulation_steps: int) -> None:
        self._stepper = stepper
        self.accumulation_steps = accumulation_steps

    def __repr__(self) -> str:
        return f"StackOptimizer(lr={self.lr!r}, t={self.t})"

    @property
    def lr(self) -> float:
        """The rate of the last step that a schedule set, else the constant rate; the next step reads what is set here.

        A schedule overrides it.

        Raises:
            ConfigError: It is set to something else than a finite number of at least 0.
        """
        return self._stepper.lr_at(self.t) if self.t else self._stepper.optimizer.lr

    @lr.setter
    def lr(self, value: float) -> None:
        self._stepper.optimizer = dataclasses.replace(self._stepper.optimizer, lr=value)

    @property
    def lr_schedule(self) -> LearningRates | None:
        """The schedule, or None."""
        return self._stepper.schedule

    @property
    def betas(self) -> tuple[float, float]:
        """Decay rates of the two moments."""
        return self._stepper.optimizer.betas

    @property
    def eps(self) -> float:
        """The denominator's epsilon."""
        return self._stepper.optimizer.eps

    @property
    def weight_decay(self) -> float:
        """Decoupled weight decay."""
        return self._stepper.optimizer.weight_decay

    @property
    def t(self) -> int:
        """Steps taken."""
        return self._stepper.state.step

    @property
    def exp_avg(self) -> npt.NDArray[np.float32]:
        """A copy of the first moments, flat in registry order."""
        return packed(self._stepper.state.m)

    @property
    def exp_avg_sq(self) -> npt.NDArray[np.float32]:
        """A copy of the second moments, flat in registry order."""
        return packed(self._stepper.state.v)

    def state_dict(self) -> dict[str, Any]:
        """Returns `t`, `exp_avg` and `exp_avg_sq`; the stack's own `state_dict` holds all of training."""
        return {"t": self.t, "exp_avg": self.exp_avg, "exp_avg_sq": self.exp_avg_sq}


def packed(buffer: FlatBuffer) -> npt.NDArray[np.float32]:
    """Return a read-only copy of a buffer's tensors, one after the other without the space between them."""
    flat = np.concatenate([view.ravel() for view in buffer.views().values()])
    flat.flags.writeable = False
    return flat
