"""What a block remembers of the tokens it has read; the caller owns it and may keep any number.

Shapes: B sequences, H heads of a Mamba-3 block, KV key and value heads, E head width, M positions of a cache.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core import checks
from trainc.core.errors import ConfigError, NotFiniteError, UsageError
from trainc.core.state_table import StateTable
from trainc.frontends.arrays import float32_input, require_shape
from trainc.frontends.blocks.kernels import STATE
from trainc.frontends.samba.config import MAX_POSITIONS, SambaConfig
from trainc.frontends.samba.layer_state import (
    AttentionArrays,
    Mamba3Arrays,
    StateBuffers,
    Tensors,
    attention_tensors,
    cache_capacity,
    layer_tensors,
    mamba3_tensors,
    require_room,
)

Array = npt.NDArray[np.float32]

_HEAD_INPUTS = 32  # elements of d_model for each head of a Mamba-3 block


def state_tables(config: SambaConfig, rows: int, capacity: int) -> dict[str, StateTable]:
    """Return the layout of the state of a one-layer model, by the arguments it is passed as.

    Args:
        config: The model.
        rows: Sequences.
        capacity: Positions of its caches, if it has any.
    """
    return STATE.tables(layer_tensors(config, config.layers[0], rows, capacity))


class BlockState(StateBuffers):
    """A state: its buffers, and how far its sequences are.

    Calls from several threads that use one state take turns.

    Args:
        tensors: Names and shapes of what it holds.
        batch_size: Number of sequences.

    Attributes:
        batch_size: As given.
        tokens: Tokens read so far, the same number for every sequence.
    """

    capacity = 1

    def __init__(self, tensors: Tensors, batch_size: int) -> None:
        super().__init__(tensors, STATE)
        self.batch_size = batch_size

    def require_room(self, tokens: int) -> None:
        """Refuse a call that would read more tokens than the state can hold."""

    def _view(self, name: str) -> Array:
        return self.views()[name]


class Mamba3State(BlockState, Mamba3Arrays):
    """State of a Mamba-3 block: what its recurrence keeps of all tokens so far (spec section 2). Zero at the start.

    Its size does not depend on the number of tokens. The arrays it gives are live views, valid until the next call that
    uses the state.

    Args:
        batch_size: Number of sequences B.
        d_model: Width of the block, a multiple of 32; it has H = d_model / 32 heads.

    Attributes:
        batch_size: As given.
        tokens: Tokens read so far, the same number for every sequence.

    Raises:
        ConfigError: A number is impossible.
    """

    def __init__(self, batch_size: int, d_model: int) -> None:
        rows, width = checks.integer("batch_size", batch_size, 1), checks.integer("d_model", d_model, 1)
        if width % _HEAD_INPUTS:
            raise ConfigError(f"d_model must be a multiple of {_HEAD_INPUTS}, got {width}")
        super().__init__(mamba3_tensors(rows, width // _HEAD_INPUTS), rows)
        self._fresh = True

    def __repr__(self) -> str:
        return f"Mamba3State(batch_size={self.batch_size}, tokens={self.tokens})"

    @property
    def theta_last_(self) -> Array:
        """A copy of `theta` after the last call; a UsageError before the first."""
        return self._reported("theta")

    @property
    def h_last_(self) -> Array:
        """A copy of `h` after the last call; a UsageError before the first."""
        return self._reported("h")

    @property
    def k_last_(self) -> Array:
        """A copy of `k_last` after the last call; a UsageError before the first."""
        return self._reported("k_last")

    @property
    def v_last_(self) -> Array:
        """A copy of `v_last` after the last call; a UsageError before the first."""
        return self._reported("v_last")

    def set_input_states(self, theta: Any, h: Any, k: Any, v: Any) -> None:
        """Starts from given states instead of zero. Nothing changes if this raises.

        Args:
            theta: Rotation angles, float32 (B, H, 32).
            h: Recurrent state, float32 (B, H, 64, 128).
            k: The last token's key, after its bias and rotation, float32 (B, H, 128).
            v: The last token's value, float32 (B, H, 64).

        Raises:
            UsageError: The state was set or used before.
            NotFiniteError: A value is not finite.
            ShapeError: A shape differs, or an array is not C-contiguous.
            DtypeError: An array is not float32.
        """
        given = {"theta": theta, "h": h, "k_last": k, "v_last": v}
        checked = {}
        for name, array in given.items():
            argument = name.removesuffix("_last")
            checked[name] = float32_input(argument, array)
            require_shape(argument, checked[name], self._view(name).shape, "(B, H, ...)")
            if not np.isfinite(checked[name]).all():
                raise NotFiniteError(f"{argument} must be finite, got values that are not")
        with self.lock:
            if not self._fresh:
                raise UsageError(
                    "set_input_states needs a fresh state: this one was set or used before; make a new one"
                )
            for name, array in checked.items():
                self._view(name)[...] = array
            self._fresh = False

    def advance(self, tokens: int) -> None:
        """Make what a call has written the state, `tokens` further."""
        super().advance(tokens)
        self._fresh = False

    def _reported(self, name: str) -> Array:
        if not self.tokens:
            raise UsageError(f"{name.removesuffix('_last')}_last_ is there after a call with this state, and none was")
        with self.lock:
            return self._view(name).copy()


class TransformerState(BlockState, AttentionArrays):
    """State of a transformer block: the keys and values of all tokens so far (spec section 3). Empty at the start.

    Args:
        batch_size: Number of sequences B.
        n_kv_heads: Key and value heads KV of the block.
        head_dim: Width E of a head.
        max_tokens: Tokens a sequence can have, at most 8192.

    Attributes:
        batch_size: As given.
        max_tokens: As given.
        tokens: Tokens read so far, the same number for every sequence.

    Raises:
        ConfigError: A number is impossible.
    """

    def __init__(self, batch_size: int, n_kv_heads: int, head_dim: int, max_tokens: int) -> None:
        rows = checks.integer("batch_size", batch_size, 1)
        heads, width = checks.integer("n_kv_heads", n_kv_heads, 1), checks.integer("head_dim", head_dim, 1)
        self.max_tokens = checks.integer("max_tokens", max_tokens, 1)
        if self.max_tokens > MAX_POSITIONS:
            raise ConfigError(f"max_tokens must be at most {MAX_POSITIONS}, got {self.max_tokens}")
        self.capacity = cache_capacity(self.max_tokens)
        super().__init__(attention_tensors(rows, heads, width, self.capacity), rows)

    def __repr__(self) -> str:
        return f"TransformerState(batch_size={self.batch_size}, max_tokens={self.max_tokens}, tokens={self.tokens})"

    @property
    def cached_tokens(self) -> int:
        """Number of tokens in the caches."""
        return self.tokens

    @property
    def k_cache(self) -> Array:
        """A copy of the keys, float32 (B*KV*max_tokens*E,): `keys()` packed at the front, the rest 0."""
        return self._packed("k_cache")

    @property
    def v_cache(self) -> Array:
        """A copy of the values, float32 (B*KV*max_tokens*E,): `values()` packed at the front, the rest 0."""
        return self._packed("v_cache")

    def require_room(self, tokens: int) -> None:
        """Refuse a call that would read more tokens than the state can hold.

        Raises:
            UsageError: They go beyond `max_tokens`.
        """
        require_room(self.max_tokens, self.tokens, tokens)

    def _packed(self, name: str) -> Array:
        cache = self._view(name)
        rows, heads, _, width = cache.shape
        flat = np.zeros(rows * heads * self.max_tokens * width, np.float32)
        with self.lock:
            used = cache[:, :, : self.tokens]
            flat[: used.size] = used.ravel()
        return flat
