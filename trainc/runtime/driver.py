"""What the training step, the loop and evaluation ask of a model family.

The step and the loop know state, entries and numbers; a family's driver knows what a batch of it looks like. Each
artifact kind has a driver in its frontend.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Inputs = Mapping[str, npt.NDArray[Any]]
"""The arrays of one batch by name, such as `ids` and `targets`."""

Call = Mapping[str, object]
"""Arguments of an entry by name, without its states."""


@dataclass(frozen=True)
class RandomState:
    """Where a run's random draws stand.

    Attributes:
        seed: Key of every draw, in [0, 2**64).
        counter: Number of streams taken so far, which is the next stream's id.
    """

    seed: int = 0
    counter: int = 0


@dataclass(frozen=True)
class BoundStep:
    """One training batch, cut into calls of the `gradients` entry.

    Attributes:
        calls: The arguments of each microbatch's call, in order.
        tokens: Tokens of the batch, for the speed that is reported.
        ignored_all: No target counts: the loss is 0 and all gradients are zero.
        random: Where the draws stand once the step is done.
    """

    calls: Sequence[Call]
    tokens: int
    ignored_all: bool
    random: RandomState


@dataclass(frozen=True)
class BoundEvaluation:
    """One batch, cut into calls of the `eval_loss` entry.

    Attributes:
        calls: The arguments of each call, in order.
        targets: Number of targets that count.
    """

    calls: Sequence[Call]
    targets: int


class Driver(Protocol):
    """What a model family provides. Every method that takes inputs checks them and raises before anything is run."""

    @property
    def kind(self) -> str:
        """The manifest's kind that this driver serves."""

    @property
    def rows(self) -> int:
        """Rows of one training batch, over all its microbatches."""

    @property
    def length(self) -> int:
        """Tokens of one row."""

    @property
    def accumulation_steps(self) -> int:
        """Microbatches of one training batch, a power of two."""

    @property
    def vocab(self) -> int:
        """Number of tokens the model knows; inputs lie in [0, vocab)."""

    def initial_parameters(self, seed: int) -> tuple[dict[str, npt.NDArray[np.float32]], RandomState]:
        """The weights that training starts from, by name, and where the draws stand after them."""

    def inputs(self, windows: npt.NDArray[np.uint8]) -> Inputs:
        """A batch from windows of bytes, uint8 [rows, length + 1]."""

    def bind_step(self, inputs: Inputs, random: RandomState) -> BoundStep:
        """Cut a training batch into microbatches."""

    def bind_evaluation(self, inputs: Inputs) -> BoundEvaluation:
        """Cut any number of rows into evaluation calls; rows that are not there count nothing."""
