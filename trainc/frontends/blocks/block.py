"""What both kinds of block do: hold weights, run forward, backward and from a state.

Shapes: B batch rows, L length, D d_model.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from trainc.core.errors import ArgumentTypeError, ShapeError, UsageError
from trainc.core.modes import resolve_mode
from trainc.core.state_table import StateTable
from trainc.frontends.arrays import float32_input, require_shape
from trainc.frontends.blocks.kernels import (
    BACKWARD,
    CONTINUE,
    FORWARD,
    PARAMS,
    BlockKernel,
    load_block,
)
from trainc.frontends.blocks.states import BlockState, state_tables
from trainc.frontends.samba.buckets import piece
from trainc.frontends.samba.config import MAX_POSITIONS, SambaConfig
from trainc.frontends.training_state import checked_tensors
from trainc.runtime.buffers import FlatBuffer
from trainc.runtime.device import open_device
from trainc.runtime.program import Results

Array = npt.NDArray[np.float32]
Weights = Mapping[str, Any] | Sequence[Any]
State = TypeVar("State", bound=BlockState)


class Block(Generic[State]):
    """One layer with its weights.

    Calls from several threads that use one block or one state take turns.

    Args:
        config: A model of this one layer.
        weights: The layer's weights, by name or in the order of `block_shapes`.
        numeric_mode: A numeric mode or None for the default.

    Attributes:
        names: Names of the weights, in order.
        shapes: Their shapes.
        numeric_mode: The numeric mode.
    """

    state_type: ClassVar[type[BlockState]]
    has_positions: ClassVar[bool]

    def __init__(self, config: SambaConfig, weights: Weights, numeric_mode: str | None) -> None:
        config.check_buildable()
        self._lock = threading.RLock()
        self._config = config
        self.numeric_mode = resolve_mode(numeric_mode)
        table = StateTable.build(PARAMS, self.block_shapes())
        self.names = list(table.names)
        self.shapes = [tensor.shape for tensor in table.tensors]
        checked = checked_tensors(table, "weights", self._named(weights))
        self._params = FlatBuffer(open_device(), table)
        self._params.write(checked)

    @property
    def d_model(self) -> int:
        """Width of the block."""
        return self._config.d_model

    def block_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Returns the weights as (name, shape) pairs, in order."""
        return self._config.block_shapes(self._config.layers[0])

    def parameters(self) -> dict[str, Array]:
        """Returns the weights by name, in order: live views, so that writing to one changes the block."""
        return self._params.views()

    def load_weights(self, weights: Weights) -> None:
        """Copies weights in. Nothing changes if this raises.

        Args:
            weights: One finite float32 array for every name of `block_shapes`, or all of them in that order.

        Raises:
            ShapeError: A weight is missing or unknown, or a shape differs.
            DtypeError: An array is not float32.
            NotFiniteError: A value is not finite.
        """
        checked = checked_tensors(self._params.table, "weights", self._named(weights))
        with self._lock:
            self._params.write(checked)

    def forward(self, x: Any, state: State | None = None) -> Array:
        """Runs the block over a batch of sequences.

        Args:
            x: float32 (B, L, D).
            state: What came before; None is nothing. The call moves it on behind `x`.

        Returns:
            float32 (B, L, D).

        Raises:
            ShapeError: A shape does not fit, or `x` is not C-contiguous.
            DtypeError: `x` is not float32.
            ArgumentTypeError: `state` is not this block's kind of state.
            UsageError: More tokens than the state can hold, or than attention has positions for.
        """
        x_BLD = self._batch("x", x)
        if state is not None:
            return self._read(x_BLD, state)
        return self._call(FORWARD, {"x": x_BLD})["y"]

    def backward(self, x: Any, dy: Any) -> dict[str, Array]:
        """Computes gradients of a forward pass from no state, which it repeats.

        Args:
            x: The forward pass's input, float32 (B, L, D).
            dy: Gradient of its output, float32 (B, L, D).

        Returns:
            The gradient of "x", then that of every weight by its name, in order.

        Raises:
            ShapeError: A shape does not fit, or an array is not C-contiguous.
            DtypeError: An array is not float32.
            UsageError: More tokens than attention has positions for.
        """
        x_BLD, d_y_BLD = self._batch("x", x), self._batch("dy", dy)
        if d_y_BLD.shape != x_BLD.shape:
            raise ShapeError(f"dy must have the shape {x_BLD.shape} of x, got {d_y_BLD.shape}")
        return self._call(BACKWARD, {"x": x_BLD, "dy": d_y_BLD})

    def step(self, x: Any, state: State) -> Array:
        """Reads one token in every sequence: `forward` with a state and L = 1.

        Args:
            x: float32 (B, D) or (B, 1, D).
            state: What came before; the call moves it on by one token.

        Returns:
            float32 of the shape of `x`.

        Raises:
            ShapeError: A shape does not fit, or `x` is not C-contiguous.
            DtypeError: `x` is not float32.
            ArgumentTypeError: `state` is not this block's kind of state.
            UsageError: The state is full.
        """
        taken = float32_input("x", x)
        if taken.ndim not in (2, 3) or (taken.ndim == 3 and taken.shape[1] != 1) or taken.shape[-1] != self.d_model:
            width = self.d_model
            raise ShapeError(f"x must have shape (B, {width}) or (B, 1, {width}), got {taken.shape}")
        return self._read(taken.reshape(-1, 1, self.d_model), state).reshape(taken.shape)

    def _named(self, weights: Weights) -> Mapping[str, Any]:
        if isinstance(weights, Mapping):
            return weights
        if isinstance(weights, (str, bytes)) or not isinstance(weights, Sequence):
            raise ArgumentTypeError(f"weights must be a dict or a list of arrays, got {type(weights).__name__}")
        names = [name for name, _ in self.block_shapes()]
        if len(weights) != len(names):
            raise ShapeError(f"weights must be the {len(names)} arrays {', '.join(names)}, got {len(weights)}")
        return dict(zip(names, weights, strict=True))

    def _batch(self, name: str, value: Any) -> Array:
        array = float32_input(name, value)
        require_shape(name, array, (None, None, self.d_model), "(B, L, D)")
        if self.has_positions and array.shape[1] > MAX_POSITIONS:
            raise UsageError(f"{name} must have at most {MAX_POSITIONS} tokens a row, got {array.shape[1]}")
        return array

    def _read(self, x_BTD: Array, state: State) -> Array:
        if not isinstance(state, self.state_type):
            raise ArgumentTypeError(f"state must be a {self.state_type.__name__}, got {type(state).__name__}")
        with state.lock:
            return self._read_next(x_BTD, state)

    def _read_next(self, x_BTD: Array, state: State) -> Array:
        self._check_state(state, *x_BTD.shape[:2])
        rows, tokens, width = x_BTD.shape
        size = piece(tokens, state.capacity if self.has_positions else None)
        padded = np.zeros((rows, size, width), np.float32)
        padded[:, :tokens] = x_BTD
        arguments = {**state.arguments(), "x": padded, "length": tokens, "position": state.tokens}
        y = self._call(CONTINUE, arguments, state.capacity)["y"]
        state.advance(tokens)
        return np.ascontiguousarray(y[:, :tokens])

    def _check_state(self, state: State, rows: int, tokens: int) -> None:
        if rows != state.batch_size:
            raise ShapeError(f"x must have the state's {state.batch_size} rows, got {rows}")
        if state.tables != state_tables(self._config, rows, state.capacity):
            raise ShapeError("the state is one of a block of another shape; allocate it with allocate_state")
        state.require_room(tokens)

    def _call(self, entry: str, arguments: Mapping[str, Any], capacity: int = 1) -> Results:
        rows, tokens, _ = arguments["x"].shape
        kernel = BlockKernel(self._config, self.numeric_mode, entry, rows, tokens, capacity)
        with self._lock:
            return load_block(kernel).call(entry, {PARAMS: self._params, **arguments})
