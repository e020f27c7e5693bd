"""What the states of a single block and of a whole stack have in common: layout, buffers and the arrays of a layer.

Shapes: B sequences, H heads of a Mamba-3 layer, KV key and value heads, E head width, M positions of a cache.
"""

import threading
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from trainc.core.errors import UsageError
from trainc.core.state_table import StateTable
from trainc.frontends.samba.config import MAMBA_ANGLES, MAMBA_HEAD_DIM, MAMBA_STATE, SambaConfig
from trainc.runtime.buffers import FlatBuffer
from trainc.runtime.device import open_device

CAPACITY_STEP = 64
"""Caches hold a multiple of this many positions, so that states of similar sizes share compiled code."""

Array = npt.NDArray[np.float32]
Tensors = list[tuple[str, tuple[int, ...]]]


def cache_capacity(max_tokens: int) -> int:
    """Return the positions that a cache for `max_tokens` is given."""
    return -(-max_tokens // CAPACITY_STEP) * CAPACITY_STEP


def mamba3_tensors(rows: int, heads: int) -> Tensors:
    """Return the tensors of a Mamba-3 layer's state as (name, shape) pairs."""
    return [
        ("theta", (rows, heads, MAMBA_ANGLES)),
        ("h", (rows, heads, MAMBA_HEAD_DIM, MAMBA_STATE)),
        ("k_last", (rows, heads, MAMBA_STATE)),
        ("v_last", (rows, heads, MAMBA_HEAD_DIM)),
    ]


def attention_tensors(rows: int, heads: int, width: int, capacity: int) -> Tensors:
    """Return the tensors of an attention layer's state as (name, shape) pairs."""
    return [(name, (rows, heads, capacity, width)) for name in ("k_cache", "v_cache")]


_TENSORS: dict[str, Callable[[SambaConfig, int, int], Tensors]] = {
    "mamba3": lambda config, rows, _: mamba3_tensors(rows, config.mamba_heads),
    "attention": lambda config, rows, capacity: attention_tensors(rows, config.kv_heads, config.head_width, capacity),
}


def layer_tensors(config: SambaConfig, kind: str, rows: int, capacity: int) -> Tensors:
    """Return the tensors of a layer's state as (name, shape) pairs.

    Args:
        config: The model.
        kind: Kind of the layer.
        rows: Sequences.
        capacity: Positions of its caches, if it has any.
    """
    return _TENSORS[kind](config, rows, capacity)


def require_room(max_tokens: int, used: int, tokens: int) -> None:
    """Refuse a call that would read more tokens than a state can hold.

    Raises:
        UsageError: `used + tokens` go beyond `max_tokens`.
    """
    if used + tokens > max_tokens:
        raise UsageError(
            f"the state holds max_tokens={max_tokens} positions; {used} are used and {tokens} more "
            "were given; allocate a larger state"
        )


class StateBuffers:
    """Two buffers that calls read and write in turn, and how far the sequences are.

    Args:
        table: Layout of a buffer.
        names: Names of the buffers, of the one that the first call reads first.

    Attributes:
        tokens: Tokens read so far, the same number for every sequence.
        lock: Held by whoever reads the state or moves it on.
    """

    def __init__(self, table: StateTable, names: tuple[str, str]) -> None:
        self.lock = threading.RLock()
        device = open_device()
        self._current, self._next = (FlatBuffer(device, table, name) for name in names)
        self.tokens = 0

    @property
    def table(self) -> StateTable:
        """Layout of the buffers."""
        return self._current.table

    @property
    def buffers(self) -> tuple[FlatBuffer, FlatBuffer]:
        """The buffer that holds the state, and the one that the next call writes."""
        return self._current, self._next

    def advance(self, tokens: int) -> None:
        """Make the buffer that a call has written the state, `tokens` further."""
        self._current, self._next = self._next, self._current
        self.tokens += tokens


class Mamba3Arrays:
    """The arrays of a Mamba-3 layer's state: live views, valid until the next call that uses the state."""

    @property
    def theta(self) -> Array:
        """Rotation angles (B, H, 32), in [0, 2 pi)."""
        return self._view("theta")

    @property
    def h(self) -> Array:
        """The recurrent state (B, H, 64, 128)."""
        return self._view("h")

    @property
    def k_last(self) -> Array:
        """The last token's rotated key (B, H, 128)."""
        return self._view("k_last")

    @property
    def v_last(self) -> Array:
        """The last token's value (B, H, 64)."""
        return self._view("v_last")

    def _view(self, name: str) -> Array:
        raise NotImplementedError


class AttentionArrays:
    """The arrays of an attention layer's state."""

    @property
    def cached_tokens(self) -> int:
        """Number of tokens in the caches."""
        raise NotImplementedError

    def keys(self) -> Array:
        """The rotated keys (B, KV, cached_tokens, E): a live view, valid until the next call that uses the state."""
        return self._view("k_cache")[:, :, : self.cached_tokens]

    def values(self) -> Array:
        """The values (B, KV, cached_tokens, E): a live view, valid until the next call that uses the state."""
        return self._view("v_cache")[:, :, : self.cached_tokens]

    def _view(self, name: str) -> Array:
        raise NotImplementedError
