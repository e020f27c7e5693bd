"""What training changes: weights, moments, the step count and where the random draws stand."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from trainc.core.state_table import StateTable
from trainc.runtime.buffers import FlatBuffer
from trainc.runtime.driver import RandomState

TABLE = "params"


class BufferMaker(Protocol):
    """What makes buffers on a device: a program."""

    def new_state(self, table: str, name: str | None = None, /) -> FlatBuffer:
        """A new buffer of zeros; see `Program.new_state`."""


class TrainState:
    """State of one training run, resident on a device and zero at the start.

    Args:
        maker: Makes its buffers.

    Attributes:
        table: Layout of `params`, `m` and `v`.
        params: The weights.
        m: First moments.
        v: Second moments.
        step: Steps taken.
        random: Where the random draws stand.
    """

    def __init__(self, maker: BufferMaker) -> None:
        self.params = maker.new_state(TABLE, "params")
        self.m = maker.new_state(TABLE, "m")
        self.v = maker.new_state(TABLE, "v")
        self.table: StateTable = self.params.table
        self.step = 0
        self.random = RandomState()

    def start(self, parameters: Mapping[str, npt.NDArray[np.float32]], random: RandomState) -> None:
        """Begin at step 0 with the given weights and moments of zero."""
        self.restore(parameters, None, None, 0, random)

    def restore(
        self,
        parameters: Mapping[str, npt.NDArray[Any]],
        m: Mapping[str, npt.NDArray[Any]] | None,
        v: Mapping[str, npt.NDArray[Any]] | None,
        step: int,
        random: RandomState,
    ) -> None:
        """Take over a state; all arrays are checked before anything changes.

        Args:
            parameters: float32 arrays by name.
            m: First moments by name; None is zero.
            v: Second moments by name; None is zero.
            step: Steps taken.
            random: Where the draws stand.

        Raises:
            ShapeError: A tensor is missing, unknown or of another shape.
            DtypeError: An array is not float32.
        """
        packed = [
            (buffer, None if arrays is None else self.table.pack(arrays))
            for buffer, arrays in ((self.params, parameters), (self.m, m), (self.v, v))
        ]
        for buffer, flat in packed:
            buffer.flat[...] = 0 if flat is None else flat
        self.step, self.random = step, random
