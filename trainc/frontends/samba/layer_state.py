"""What the states of a single block and of a whole stack have in common: layout, buffers and the arrays of a layer.

Shapes: B sequences, H heads of a Mamba-3 layer, KV key and value heads, E head width, M positions of a cache.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainc.core.errors import ConfigError, UsageError
from trainc.core.state_table import StateTable
from trainc.frontends.samba.config import MAMBA_ANGLES, MAMBA_HEAD_DIM, MAMBA_STATE, SambaConfig
from trainc.runtime.buffers import FlatBuffer
from trainc.runtime.device import open_device

CAPACITY_STEP = 64
"""Caches hold a multiple of this many positions, so that states of similar sizes share compiled code."""

_MOST_ELEMENTS = 2**60  # of a buffer of 4-byte elements whose size in bytes fits 63 bits, with its padding

_CACHE = "_cache"  # how the names of caches end

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
    return [(name, (rows, heads, capacity, width)) for name in ("k" + _CACHE, "v" + _CACHE)]


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


def _require_addressable(tensors: Tensors, tables: Mapping[str, StateTable]) -> None:
    for table in tables.values():
        if table.size >= _MOST_ELEMENTS:
            shapes = ", ".join(f"{name} {shape}" for name, shape in tensors)
            raise ConfigError(
                f"batch_size and the other sizes must make a state of less than {_MOST_ELEMENTS} elements, got {shapes}"
            )


@dataclass(frozen=True)
class StateNames:
    """What the entries that continue a sequence call its state, and its tables.

    A call replaces what a recurrence keeps as a whole: it reads one buffer and writes another. To a cache it adds rows:
    there is one buffer, and all but those rows stay as they are.

    Attributes:
        old: Argument that is read.
        new: Argument that is written.
        cache: Argument that rows are added to.
        table: Table of the first two.
        cache_table: Table of the third.
    """

    old: str
    new: str
    cache: str
    table: str
    cache_table: str

    def tables(self, tensors: Tensors) -> dict[str, StateTable]:
        """Return the layout of each argument that a state of some tensors needs."""
        caches = [tensor for tensor in tensors if tensor[0].endswith(_CACHE)]
        kept = [tensor for tensor in tensors if not tensor[0].endswith(_CACHE)]
        tables: dict[str, StateTable] = {}
        if kept:
            tables |= dict.fromkeys((self.old, self.new), StateTable.build(self.table, kept))
        if caches:
            tables[self.cache] = StateTable.build(self.cache_table, caches)
        return tables


class StateBuffers:
    """The buffers of a state, and how far its sequences are.

    Args:
        tensors: Names and shapes of what the state holds.
        names: Names of the arguments it is passed as.

    Attributes:
        tables: Layout of each argument.
        tokens: Tokens read so far, the same number for every sequence.
        lock: Held by whoever reads the state or moves it on.

    Raises:
        ConfigError: The state would be larger than memory can be.
    """

    def __init__(self, tensors: Tensors, names: StateNames) -> None:
        self.lock = threading.RLock()
        device = open_device()
        self.tables = names.tables(tensors)
        _require_addressable(tensors, self.tables)
        self.tokens = 0
        self._names = names
        self._buffers = {name: FlatBuffer(device, table, name) for name, table in self.tables.items()}

    def arguments(self) -> dict[str, FlatBuffer]:
        """Return what a call takes, by argument."""
        return dict(self._buffers)

    def views(self) -> dict[str, Array]:
        """Return the state's arrays by name: live views, valid until the next call that uses the state."""
        held = (self._buffers.get(name) for name in (self._names.old, self._names.cache))
        return {name: view for buffer in held if buffer is not None for name, view in buffer.views().items()}

    def advance(self, tokens: int) -> None:
        """Make what a call has written the state, `tokens` further."""
        old, new = self._names.old, self._names.new
        if old in self._buffers:
            self._buffers[old], self._buffers[new] = self._buffers[new], self._buffers[old]
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
