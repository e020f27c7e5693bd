"""TransformerBlock: one attention layer as a building block."""

from collections.abc import Mapping
from typing import Any

from trainc.core.errors import ArgumentTypeError, UnsupportedError
from trainc.frontends.blocks.block import Block, Weights
from trainc.frontends.blocks.states import TransformerState
from trainc.frontends.samba.config import ATTENTION_NORM_EPS, ROPE_BASE, SambaConfig

FIXED: dict[str, Any] = {
    "window": 0,
    "norm_eps": ATTENTION_NORM_EPS,
    "rope_theta": ROPE_BASE,
    "rope_scaling": None,
    "partial_rotary_factor": 1.0,
    "attention_bias": False,
    "mlp_bias": False,
    "norm": "rmsnorm",
    "norm_plus_one": False,
    "activation": "swiglu",
    "qk_norm": False,
    "softcap": None,
}
"""Variants of the layer that other libraries offer, with the only value that this block has."""


class TransformerBlock(Block[TransformerState]):
    """A Llama decoder layer: grouped-query attention and a gated MLP, with its weights (spec section 3).

    Attention is causal over the whole sequence, with rotary positions below 8192. There are no biases; the epsilon of
    both norms is 1e-6. Every shape of batch is compiled when it is first used; `trainc.frontends.blocks.kernels` tells
    how to get along with few.

    Args:
        d_model: Width D, n_heads * head_dim.
        n_heads: Query heads.
        intermediate: Hidden width of the MLP.
        weights: float32 arrays by the names of `block_shapes`, or a list of them in that order; they are copied.
        n_kv_heads: Key and value heads, which must divide `n_heads`; None means `n_heads`.
        head_dim: Width of a head, even; None means d_model // n_heads.
        numeric_mode: A numeric mode or None for the default.
        **fixed: Names of `FIXED`, at the value it has there: other variants of the layer do not exist.

    Attributes:
        names: Names of the weights, in order.
        shapes: Their shapes.
        numeric_mode: The numeric mode.

    Raises:
        ConfigError: The widths do not fit together.
        ShapeError: A weight is missing or unknown, or a shape differs.
        DtypeError: A weight is not float32.
        NotFiniteError: A weight is not finite.
        UsageError: The numeric mode is unknown.
        UnsupportedError: The numeric mode, or a variant of the layer, is not available.
        ArgumentTypeError: A keyword is unknown.
    """

    state_type = TransformerState
    has_positions = True

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        intermediate: int,
        weights: Weights,
        n_kv_heads: int | None = None,
        head_dim: int | None = None,
        numeric_mode: str | None = None,
        **fixed: Any,
    ) -> None:
        _check_fixed(fixed)
        config = SambaConfig(
            vocab=2,
            d_model=d_model,
            layers=("attention",),
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            head_dim=head_dim,
            intermediate=intermediate,
        )
        super().__init__(config, weights, numeric_mode)

    def __repr__(self) -> str:
        c = self._config
        return (
            f"TransformerBlock(d_model={c.d_model}, n_heads={c.n_heads}, intermediate={c.intermediate}, "
            f"n_kv_heads={c.n_kv_heads}, head_dim={c.head_dim}, numeric_mode={self.numeric_mode!r})"
        )

    def allocate_state(self, batch_size: int, max_tokens: int) -> TransformerState:
        """Returns an empty state.

        Args:
            batch_size: Sequences that are read side by side.
            max_tokens: Tokens each can have, at most 8192.

        Raises:
            ConfigError: A number is impossible.
        """
        return TransformerState(batch_size, self._config.kv_heads, self._config.head_width, max_tokens)


def _check_fixed(given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        if name not in FIXED:
            raise ArgumentTypeError(f"{name} is not an argument of TransformerBlock")
        if value != FIXED[name]:
            raise UnsupportedError(
                f"{name} must be {FIXED[name]!r} in a TransformerBlock, got {value!r}; this variant is not available"
            )
