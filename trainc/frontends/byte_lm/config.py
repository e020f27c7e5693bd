"""LanguageModelConfig: the shape of a byte language model, its batch, and its tensors."""

import dataclasses
from typing import Any

from trainc.core import checks
from trainc.core.errors import ConfigError, UnsupportedError
from trainc.frontends.samba.config import MAX_POSITIONS, SambaConfig, Shapes

BLOCK_NAMES: dict[str, str] = {
    "norm1_w": "input_layernorm.weight",
    "w_q": "q_proj.weight",
    "w_k": "k_proj.weight",
    "w_v": "v_proj.weight",
    "w_o": "o_proj.weight",
    "norm2_w": "post_attention_layernorm.weight",
    "w_gate": "gate_proj.weight",
    "w_up": "up_proj.weight",
    "w_down": "down_proj.weight",
}
"""The tensors of a block in order, each with its name in an attention layer."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageModelConfig:
    """Shape of a byte language model and of its training batch.

    Args:
        batch: Rows of a training batch.
        length: Tokens of a row, at most 8192; a row of ids has one more, the last target.
        d_model: Width, n_heads * head_dim.
        n_heads: Query heads.
        n_kv: Key and value heads, which must divide `n_heads`.
        head_dim: Width of a head, even.
        intermediate: Hidden width of the MLPs.
        n_layers: Number of transformer blocks.
        vocab_size: Number of tokens, at least 2.
        chunked_lm_head_v2: A variant of the output head that does not exist here; must be False.

    Raises:
        ConfigError: A value is impossible; the message starts with the field's name.
        UnsupportedError: `chunked_lm_head_v2` is True.
    """

    batch: int = 2
    length: int = 32
    d_model: int = 32
    n_heads: int = 4
    n_kv: int = 2
    head_dim: int = 8
    intermediate: int = 64
    n_layers: int = 2
    vocab_size: int = 256
    chunked_lm_head_v2: bool = False

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name == "chunked_lm_head_v2":
                checked: Any = checks.flag(field.name, value)
            else:
                checked = checks.integer(field.name, value, 2 if field.name == "vocab_size" else 1)
            object.__setattr__(self, field.name, checked)
        if self.length > MAX_POSITIONS:
            raise ConfigError(f"length must be at most {MAX_POSITIONS}, got {self.length}")
        if self.chunked_lm_head_v2:
            raise UnsupportedError("chunked_lm_head_v2 must be False: this variant of the output head is not available")
        if self.n_heads % self.n_kv:
            raise ConfigError(f"n_kv must divide n_heads ({self.n_heads}), got {self.n_kv}")
        self.block.check_buildable()

    @property
    def block(self) -> SambaConfig:
        """One block of the model as a model of its own."""
        return SambaConfig(
            vocab=self.vocab_size,
            d_model=self.d_model,
            layers=("attention",),
            n_heads=self.n_heads,
            n_kv_heads=self.n_kv,
            head_dim=self.head_dim,
            intermediate=self.intermediate,
        )

    def registry(self) -> Shapes:
        """Returns every weight as a (name, shape) pair: `embed`, the blocks' `block{i}.*`, `lm_head`."""
        shapes = dict(self.block.block_shapes("attention"))
        table = (self.vocab_size, self.d_model)
        blocks = [
            (f"block{number}.{name}", shapes[layer_name])
            for number in range(self.n_layers)
            for name, layer_name in BLOCK_NAMES.items()
        ]
        return [("embed", table), *blocks, ("lm_head", table)]

    def to_dict(self) -> dict[str, Any]:
        """Returns the configuration as a plain dict, ready for JSON."""
        return dataclasses.asdict(self)
