"""What a stack compiles on demand: one kernel for each shape of batch, a bounded number of them loaded.

A shape is compiled when it is first used and kept in the cache folder; another stack or process of the same model
loads it from there. To compile little, use few shapes:

- Training: give every batch the same rows and length. Fill short rows up and set the targets of the filling to -100;
  give a part of a batch ignored rows instead of fewer rows.
- `forward` and `loss`: pad rows to a few lengths, such as powers of two, and pass `lengths`.
- Reading piece by piece costs nothing: a state's calls are compiled for 1 token, and for 16, 32, 64, ... tokens, and
  any number in between runs in the next larger one. Caches are sized in steps of 64 tokens.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from trainc.core.state_table import StateTable
from trainc.frontends.samba.config import SambaConfig
from trainc.frontends.samba.driver import Ids
from trainc.frontends.samba.model_kernel import ModelKernel
from trainc.frontends.samba.state import SambaState
from trainc.runtime.buffers import FlatBuffer
from trainc.runtime.device import open_device
from trainc.runtime.program import Program, Results
from trainc.runtime.state import TABLE

if TYPE_CHECKING:
    from trainc.frontends.tracing.artifact import Source

MAX_LOADED = 32
"""Kernels that one stack keeps loaded; the least recently used ones go."""

_SMALLEST_PIECE = 16
_COMMON = "common"


class Shape(ModelKernel):
    """A kernel of a stack: "gradients", "eval_loss", "forward", "continue", or "common" for the entries of no shape."""

    @property
    def name(self) -> str:
        """A name for people."""
        return f"samba-{self.entry}" + ("" if self.entry == _COMMON else f"-{self.rows}x{self.tokens}")

    def _source(self) -> "Source":
        from trainc.frontends.samba.config_file import BatchConfig, DecodeConfig, SambaRunConfig
        from trainc.frontends.samba.tracing.build import shape_source

        decode = DecodeConfig(rows=self.rows, prefill=self.tokens, max_tokens=max(self.tokens, self.capacity))
        run = SambaRunConfig(model=self.config, batch=BatchConfig(rows=self.rows, length=self.tokens), decode=decode)
        return shape_source(run, self.entry, self.mode)


class LoadedShapes:
    """The kernels that are loaded, the least recently used going first.

    Args:
        limit: The most that stay loaded.
        load: Loads one.
    """

    def __init__(self, limit: int = MAX_LOADED, load: Callable[[Shape], Program] = Shape.load) -> None:
        self._get = lru_cache(maxsize=limit)(load)  # calls that are under way keep a program that goes

    def __len__(self) -> int:
        return self._get.cache_info().currsize

    def get(self, shape: Shape) -> Program:
        """Return a kernel, loaded; the errors are those of `Shape.load`."""
        return self._get(shape)


class StackEntries:
    """The entries of one model for batches of any shape.

    Args:
        config: The model.
        mode: Numeric mode.
        limit: Kernels that stay loaded.

    Attributes:
        table: Layout of the parameters, gradients and moments.
        loaded: The kernels that are loaded.
    """

    def __init__(self, config: SambaConfig, mode: str, limit: int = MAX_LOADED) -> None:
        self.table = StateTable.build(TABLE, config.registry())
        self.loaded = LoadedShapes(limit)
        self._config, self._mode = config, mode
        self._plain = replace(config, dropout=0.0)  # all but training is the same whatever the dropout rate

    def call(self, name: str, arguments: Mapping[str, object], /) -> Results:
        """Run an entry of the shape of its `ids`; see `Program.call`."""
        return self.loaded.get(self._shape(name, arguments)).call(name, arguments)

    def new_state(self, table: str, name: str | None = None, /) -> FlatBuffer:
        """A new buffer of zeros, laid out as the parameters."""
        return FlatBuffer(open_device(), self.table, name or table)

    def read(self, params: FlatBuffer, state: SambaState, ids: Ids) -> npt.NDArray[np.float32]:
        """Run new tokens from a state, which is moved on behind them.

        Args:
            params: The weights.
            state: A state that was checked for these ids.
            ids: int32 (B, T), checked.

        Returns:
            float32 (B, T, V), the logits after every token.
        """
        rows, tokens = ids.shape
        size = piece(tokens, state.capacity if "attention" in self._config.layers else None)
        padded = np.zeros((rows, size), np.int32)
        padded[:, :tokens] = ids
        arguments = {"params": params, **state.arguments(), "ids": padded}
        shape = Shape(self._plain, self._mode, "continue", rows, size, state.capacity)
        results = self.loaded.get(shape).call("continue", {**arguments, "length": tokens, "position": state.position})
        state.advance(tokens)
        return np.ascontiguousarray(results["logits"][:, :tokens])

    def _shape(self, name: str, arguments: Mapping[str, object]) -> Shape:
        ids = arguments.get("ids")
        if not isinstance(ids, np.ndarray):
            return Shape(self._plain, self._mode, _COMMON)
        rows, tokens = ids.shape
        return Shape(self._config if "dropout_key" in arguments else self._plain, self._mode, name, rows, tokens)


def piece(tokens: int, capacity: int | None) -> int:
    """Return the number of tokens that a state's call of `tokens` is compiled for.

    Args:
        tokens: At least 1.
        capacity: Positions of the state's caches; None without caches.
    """
    if tokens == 1:
        return 1
    size = max(_SMALLEST_PIECE, 1 << (tokens - 1).bit_length())
    return size if capacity is None else min(size, capacity)
