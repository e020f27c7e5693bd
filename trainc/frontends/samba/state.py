"""SambaState: what a stack remembers of the tokens it has read, layer by layer.

Shapes: B sequences, H heads of a Mamba-3 layer, KV key and value heads, E head width, M positions of a cache.
"""

import numpy as np
import numpy.typing as npt

from trainc.core import checks
from trainc.core.errors import ArgumentTypeError, ShapeError, UsageError
from trainc.core.state_table import StateTable
from trainc.frontends.samba.config import MAX_POSITIONS, SambaConfig
from trainc.frontends.samba.layer_state import (
    AttentionArrays,
    Mamba3Arrays,
    StateBuffers,
    StateNames,
    Tensors,
    cache_capacity,
    layer_tensors,
    require_room,
)
from trainc.runtime.buffers import FlatBuffer

Array = npt.NDArray[np.float32]


NAMES = StateNames("decode_in", "decode_out", "decode_cache", table="decode", cache_table="cache")
"""What the entries prefill, decode and continue call the state."""


def decode_tables(config: SambaConfig, rows: int, max_tokens: int) -> dict[str, StateTable]:
    """Return the layout of the decode state, by the arguments it is passed as.

    Args:
        config: The model's shape.
        rows: Sequences decoded together.
        max_tokens: Positions an attention cache can hold.
    """
    return NAMES.tables(_tensors(config, rows, max_tokens))


def _tensors(config: SambaConfig, rows: int, max_tokens: int) -> Tensors:
    return [
        (f"layers.{number}.{name}", shape)
        for number, kind in enumerate(config.layers)
        for name, shape in layer_tensors(config, kind, rows, max_tokens)
    ]


class _LayerState:
    """The state of one layer: reading an attribute gives a live view, valid until the next call that uses the state."""

    def __init__(self, buffers: StateBuffers, number: int) -> None:
        self._buffers, self._number = buffers, number

    def _view(self, name: str) -> Array:
        return self._buffers.views()[f"layers.{self._number}.{name}"]


class Mamba3State(_LayerState, Mamba3Arrays):
    """The state of a Mamba-3 layer: what the recurrence keeps of all tokens so far (spec section 2)."""


class TransformerState(_LayerState, AttentionArrays):
    """The state of an attention layer: the keys and values of all tokens so far."""

    @property
    def cached_tokens(self) -> int:
        """Number of tokens in the caches."""
        return self._buffers.tokens


_LAYER_STATES: dict[str, type[Mamba3State] | type[TransformerState]] = {
    "mamba3": Mamba3State,
    "attention": TransformerState,
}


class SambaState:
    """State of a batch of sequences that are read piece by piece; `SambaStack.allocate_state` makes one.

    Args:
        config: The model.
        batch_size: Number of sequences.
        max_tokens: Tokens a sequence can have; it limits models with attention only.

    Attributes:
        batch_size: As given.
        max_tokens: As given.
        capacity: Positions that the caches have room for, at least `max_tokens`.
        layers: A `Mamba3State` or `TransformerState` for each layer, in stack order.

    Raises:
        ArgumentTypeError: `config` is no SambaConfig.
        ConfigError: A number is below 1, or the state would be larger than memory can be.
        UsageError: More tokens than attention has positions for.
    """

    def __init__(self, config: SambaConfig, batch_size: int, max_tokens: int) -> None:
        if not isinstance(config, SambaConfig):
            raise ArgumentTypeError(f"config must be a SambaConfig, got {type(config).__name__}")
        self.batch_size = checks.integer("batch_size", batch_size, 1)
        self.max_tokens = checks.integer("max_tokens", max_tokens, 1)
        if "attention" in config.layers and self.max_tokens > MAX_POSITIONS:
            raise UsageError(f"max_tokens must be at most {MAX_POSITIONS} in a model with attention, got {max_tokens}")
        self.capacity = capacity(config, self.max_tokens)
        self._layers = config.layers
        self._buffers = StateBuffers(_tensors(config, self.batch_size, self.capacity), NAMES)
        self.layers: list[Mamba3State | TransformerState] = [
            _LAYER_STATES[kind](self._buffers, number) for number, kind in enumerate(config.layers)
        ]

    def __repr__(self) -> str:
        return f"SambaState(batch_size={self.batch_size}, max_tokens={self.max_tokens}, position={self.position})"

    @property
    def position(self) -> int:
        """Tokens read so far, the same number for every sequence."""
        return self._buffers.tokens

    def arguments(self) -> dict[str, FlatBuffer]:
        """Return what a call takes, by argument."""
        return self._buffers.arguments()

    def advance(self, tokens: int) -> None:
        """Make what a call has written the state, `tokens` further."""
        self._buffers.advance(tokens)

    def require(self, config: SambaConfig, rows: int, tokens: int) -> None:
        """Refuse a call that this state cannot be used for.

        Args:
            config: The model of the call.
            rows: Its sequences.
            tokens: Its tokens in each.

        Raises:
            ShapeError: Another number of sequences, or layers of another model.
            UsageError: A model with attention would go beyond `max_tokens`.
        """
        if rows != self.batch_size:
            raise ShapeError(f"inputs must have the state's {self.batch_size} rows, got {rows}")
        wanted = decode_tables(config, self.batch_size, self.capacity)
        if self._layers != config.layers or self._buffers.tables != wanted:
            raise ShapeError(
                f"the state is one of another model: it has layers {', '.join(self._layers)}; allocate it with the "
                "stack that uses it"
            )
        if "attention" in config.layers:
            require_room(self.max_tokens, self.position, tokens)


def capacity(config: SambaConfig, max_tokens: int) -> int:
    """Return the cache positions that are allocated for `max_tokens`: 1 where no layer has a cache."""
    return cache_capacity(max_tokens) if "attention" in config.layers else 1
