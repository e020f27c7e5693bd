"""SambaConfig: the shape of a Samba model, its tensors and their order."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from trainc.core import checks
from trainc.core.errors import ArgumentTypeError, ConfigError

LAYER_KINDS: tuple[str, ...] = ("mamba3", "attention")

# Constants of the Mamba-3 layer; no setting changes them (spec section 1).
MAMBA_STATE = 128  # N, the width of the state
MAMBA_HEAD_DIM = 64  # P
MAMBA_EXPAND = 2
MAMBA_ANGLES = 32  # R, rotation angles per token: half of the state, in pairs
MAMBA_CHUNK = 64  # Q, tokens per chunk
MAMBA_A_FLOOR = 1e-4  # the decay A is at most minus this
MAMBA_NORM_EPS = 1e-5  # block norm, B norm and C norm

# Constants of the attention layer (spec section 3).
ATTENTION_NORM_EPS = 1e-6
ROPE_BASE = 10000.0
MAX_POSITIONS = 8192  # attention positions lie below this

Shapes = list[tuple[str, tuple[int, ...]]]


@dataclasses.dataclass(frozen=True)
class SambaConfig:
    """Shape of a Samba model: vocabulary, width and the kinds of its layers.

    Args:
        vocab: Vocabulary size, at least 2.
        d_model: Model width; a multiple of 32 with any "mamba3" layer, n_heads * head_dim with any "attention".
        layers: Layer kinds in stack order, each "mamba3" or "attention"; kept as a tuple.
        n_heads: Attention heads; needed by attention layers.
        n_kv_heads: Key and value heads of attention layers; None means n_heads.
        head_dim: Width of an attention head; None means d_model // n_heads.
        intermediate: Hidden width of the attention layers' gated MLP; needed by attention layers.
        tie_embeddings: Whether the output head reuses the embedding matrix.
        norm_eps: Epsilon of the final RMSNorm, at least 0; rounded to float32.
        dropout: Dropout rate after the embedding in training, in [0, 1); rounded to float32.

    Raises:
        ConfigError: A value is impossible; the message starts with the field's name.
    """

    vocab: int
    d_model: int
    layers: tuple[str, ...]
    n_heads: int | None = None
    n_kv_heads: int | None = None
    head_dim: int | None = None
    intermediate: int | None = None
    tie_embeddings: bool = True
    norm_eps: float = 1e-5
    dropout: float = 0.0

    def __post_init__(self) -> None:
        values = {
            "vocab": checks.integer("vocab", self.vocab, 2),
            "d_model": checks.integer("d_model", self.d_model, 1),
            "layers": _layers(self.layers),
            "tie_embeddings": checks.flag("tie_embeddings", self.tie_embeddings),
            "norm_eps": checks.float32_at_least_0("norm_eps", self.norm_eps),
            "dropout": checks.float32_below_1("dropout", self.dropout),
        }
        for name in ("n_heads", "n_kv_heads", "head_dim", "intermediate"):
            given = getattr(self, name)
            values[name] = None if given is None else checks.integer(name, given, 1)
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if "mamba3" in self.layers:
            self._check_mamba()
        if "attention" in self.layers:
            self._complete_attention()

    def _check_mamba(self) -> None:
        step = MAMBA_HEAD_DIM // MAMBA_EXPAND
        if self.d_model % step:
            raise ConfigError(f"d_model must be a multiple of {step} for mamba3 layers, got {self.d_model}")

    def _complete_attention(self) -> None:
        """Fills head_dim and n_kv_heads, which only attention layers give a meaning."""
        for name in ("n_heads", "intermediate"):
            if getattr(self, name) is None:
                raise ConfigError(f"{name} must be given because layers has an attention, got None")
        n_heads = self.n_heads or 0
        if self.head_dim is None:
            if self.d_model % n_heads:
                raise ConfigError(f"n_heads must divide d_model ({self.d_model}) when head_dim is None, got {n_heads}")
            object.__setattr__(self, "head_dim", self.d_model // n_heads)
        elif n_heads * self.head_dim != self.d_model:
            raise ConfigError(
                f"head_dim times n_heads must be d_model ({self.d_model}), got {self.head_dim} * {n_heads}"
            )
        if self.n_kv_heads is None:
            object.__setattr__(self, "n_kv_heads", n_heads)

    def check_buildable(self) -> None:
        """Checks what the layers themselves ask for, beyond a consistent description.

        Raises:
            ConfigError: n_kv_heads does not divide n_heads, or head_dim is odd, in a model with attention.
        """
        if "attention" not in self.layers:
            return
        if self.query_heads % self.kv_heads:
            raise ConfigError(f"n_kv_heads must divide n_heads ({self.n_heads}), got {self.n_kv_heads}")
        if self.head_width % 2:
            raise ConfigError(f"head_dim must be even for rotary positions, got {self.head_dim}")

    def to_dict(self) -> dict[str, Any]:
        """Returns the configuration as a plain dict, ready for JSON; `layers` is a list."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values["layers"] = list(self.layers)
        return values

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "SambaConfig":
        """Builds a configuration from what `to_dict` returned; fields with a default may be left out.

        Raises:
            ConfigError: A key is unknown, a required one is missing, or a value is impossible.
            ArgumentTypeError: `d` is no mapping.
        """
        if not isinstance(d, Mapping):
            raise ArgumentTypeError(f"d must be a dict made by to_dict, got {type(d).__name__}")
        fields = dataclasses.fields(cls)
        known = [field.name for field in fields]
        for key in d:
            if key not in known:
                raise ConfigError(f"{key} is not a field of SambaConfig; fields: {', '.join(known)}")
        for field in fields:
            if field.default is dataclasses.MISSING and field.name not in d:
                raise ConfigError(f"{field.name} is missing; SambaConfig needs it")
        return cls(**d)

    def block_shapes(self, kind: str) -> Shapes:
        """Returns the tensors of one layer as (name, shape) pairs, in weight order.

        Args:
            kind: "mamba3" or "attention".

        Raises:
            ConfigError: `kind` is unknown, or this configuration cannot have such a layer.
        """
        if kind not in LAYER_KINDS:
            raise ConfigError(f"kind must be one of {', '.join(LAYER_KINDS)}, got {kind!r}")
        return self._mamba_shapes() if kind == "mamba3" else self._attention_shapes()

    def _mamba_shapes(self) -> Shapes:
        self._check_mamba()
        heads, width = self.mamba_heads, self.mamba_width
        return [
            ("block_norm.weight", (self.d_model,)),
            ("in_proj.weight", (self.mamba_in_proj, self.d_model)),
            ("dt_bias", (heads,)),
            ("B_norm.weight", (MAMBA_STATE,)),
            ("C_norm.weight", (MAMBA_STATE,)),
            ("B_bias", (heads, MAMBA_STATE)),
            ("C_bias", (heads, MAMBA_STATE)),
            ("D", (heads,)),
            ("out_proj.weight", (self.d_model, width)),
        ]

    def _attention_shapes(self) -> Shapes:
        width, hidden = self.d_model, self.mlp_width
        query, key_value = self.query_width, self.kv_width
        return [
            ("input_layernorm.weight", (width,)),
            ("post_attention_layernorm.weight", (width,)),
            ("q_proj.weight", (query, width)),
            ("k_proj.weight", (key_value, width)),
            ("v_proj.weight", (key_value, width)),
            ("o_proj.weight", (width, query)),
            ("gate_proj.weight", (hidden, width)),
            ("up_proj.weight", (hidden, width)),
            ("down_proj.weight", (width, hidden)),
        ]

    def registry(self) -> Shapes:
        """Returns every parameter tensor as a (name, shape) pair, in the order of the flat buffers."""
        tensors: Shapes = [("embed.weight", (self.vocab, self.d_model))]
        for index, kind in enumerate(self.layers):
            tensors += [(f"layers.{index}.{name}", shape) for name, shape in self.block_shapes(kind)]
        tensors.append(("norm_f.weight", (self.d_model,)))
        if not self.tie_embeddings:
            tensors.append(("lm_head.weight", (self.vocab, self.d_model)))
        return tensors

    @property
    def parameter_count(self) -> int:
        """Number of trained values, all tensors together."""
        return sum(math.prod(shape) for _, shape in self.registry())

    @property
    def mamba_width(self) -> int:
        """Inner width DI of a Mamba-3 layer: heads times head width."""
        return MAMBA_EXPAND * self.d_model

    @property
    def mamba_heads(self) -> int:
        """Heads H of a Mamba-3 layer."""
        return self.mamba_width // MAMBA_HEAD_DIM

    @property
    def mamba_splits(self) -> tuple[tuple[str, int], ...]:
        """Names and widths of the parts of a Mamba-3 input projection, in column order."""
        heads = self.mamba_heads
        return (
            ("z", self.mamba_width),
            ("x", self.mamba_width),
            ("B", MAMBA_STATE),
            ("C", MAMBA_STATE),
            ("dd_dt", heads),
            ("dd_A", heads),
            ("trap", heads),
            ("angle", MAMBA_ANGLES),
        )

    @property
    def mamba_in_proj(self) -> int:
        """Output width DIP of a Mamba-3 input projection."""
        return sum(width for _, width in self.mamba_splits)

    @property
    def query_heads(self) -> int:
        """Heads of an attention layer."""
        return self._attention_value("n_heads")

    @property
    def kv_heads(self) -> int:
        """Key and value heads of an attention layer."""
        return self._attention_value("n_kv_heads")

    @property
    def head_width(self) -> int:
        """Width of one head of an attention layer."""
        return self._attention_value("head_dim")

    @property
    def mlp_width(self) -> int:
        """Hidden width of an attention layer's gated MLP."""
        return self._attention_value("intermediate")

    @property
    def query_width(self) -> int:
        """Width QW of the queries of an attention layer."""
        return self.query_heads * self.head_width

    @property
    def kv_width(self) -> int:
        """Width KW of the keys, and of the values, of an attention layer."""
        return self.kv_heads * self.head_width

    def _attention_value(self, name: str) -> int:
        value: int | None = getattr(self, name)
        if value is None:
            raise ConfigError(f"{name} must be given to describe an attention layer, got None")
        return value


def _layers(value: Any) -> tuple[str, ...]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise ConfigError(f"layers must be a sequence of layer kinds, got {value!r}")
    if not value:
        raise ConfigError(f"layers must name at least one layer of the kinds {', '.join(LAYER_KINDS)}, got none")
    for index, kind in enumerate(value):
        if kind not in LAYER_KINDS:
            raise ConfigError(f"layers[{index}] must be one of {', '.join(LAYER_KINDS)}, got {kind!r}")
    return tuple(str(kind) for kind in value)
