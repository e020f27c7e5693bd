"""The Samba model as a graph: what each layer computes, one function a block.

Shapes: B batch rows, L length, D d_model, H query heads, E head width, I intermediate, V vocabulary, T = B*L tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from trainc.frontends.samba.config import ATTENTION_NORM_EPS, MAMBA_NORM_EPS, SambaConfig
from trainc.ir.builder import layer
from trainc.ir.ops.add import add
from trainc.ir.ops.attention import attention
from trainc.ir.ops.dropout import dropout
from trainc.ir.ops.embedding import embedding
from trainc.ir.ops.linear import linear
from trainc.ir.ops.mamba3 import mamba3
from trainc.ir.ops.rms_norm import rms_norm
from trainc.ir.ops.rope import rope
from trainc.ir.ops.swiglu import swiglu
from trainc.ir.primitives import reshape
from trainc.ir.tensor import Tensor

Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class Dropout:
    """Where one microbatch draws its dropout mask.

    Attributes:
        rate: Drop probability.
        key: i32 (5,): seed low, seed high, stream, element offset low, high.
    """

    rate: float
    key: Tensor


def hidden_states(config: SambaConfig, weights: Weights, ids_BL: Tensor, dropout_at: Dropout | None = None) -> Tensor:
    """Return the final hidden states (B, L, D), after the last norm.

    Args:
        config: The model's shape.
        weights: Every parameter, by registry name.
        ids_BL: i32 token ids.
        dropout_at: Dropout after the embedding, or None for none.
    """
    with layer("embed"):
        x_BLD = embedding(weights["embed.weight"], ids_BL)
        if dropout_at is not None:
            x_BLD = dropout(x_BLD, dropout_at.key, dropout_at.rate)
    for number, kind in enumerate(config.layers):
        with layer(f"layers.{number}"):
            x_BLD = BLOCKS[kind](config, layer_weights(weights, number), x_BLD)
    with layer("norm_f"):
        return rms_norm(x_BLD, weights["norm_f.weight"], config.norm_eps)


def layer_weights(weights: Weights, number: int) -> Weights:
    """Return one layer's parameters by their short names."""
    prefix = f"layers.{number}."
    return {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}


def head_logits(weights: Weights, hidden: Tensor) -> Tensor:
    """Return logits (..., V) of hidden states (..., D), with the tied or the untied head."""
    with layer("lm_head"):
        return linear(hidden, weights.get("lm_head.weight", weights["embed.weight"]))


def mamba3_block(config: SambaConfig, w: Weights, x_BLD: Tensor) -> Tensor:
    """Return x + out_proj(mixer(in_proj(norm(x)))) (spec section 2)."""
    normed_BLD = rms_norm(x_BLD, w["block_norm.weight"], MAMBA_NORM_EPS)
    mixed = mamba3(
        linear(normed_BLD, w["in_proj.weight"]),
        w["dt_bias"],
        w["B_norm.weight"],
        w["C_norm.weight"],
        w["B_bias"],
        w["C_bias"],
        w["D"],
    )
    return add(x_BLD, linear(mixed, w["out_proj.weight"]))


def attention_block(config: SambaConfig, w: Weights, x_BLD: Tensor) -> Tensor:
    """Return a Llama decoder layer: attention and a gated MLP, each with its norm and residual (spec section 3)."""
    q_BLHE, k_BLKE, v_BLKE = attention_inputs(config, w, x_BLD)
    out_BLHE, _ = attention(rope(q_BLHE), rope(k_BLKE), v_BLKE)
    return attention_outputs(w, x_BLD, out_BLHE)


def attention_inputs(config: SambaConfig, w: Weights, x_BLD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values by head, before the rotary positions."""
    batch, length, _ = x_BLD.shape
    normed_BLD = rms_norm(x_BLD, w["input_layernorm.weight"], ATTENTION_NORM_EPS)
    heads = {"q": config.query_heads, "k": config.kv_heads, "v": config.kv_heads}
    q, k, v = (
        reshape(linear(normed_BLD, w[f"{name}_proj.weight"]), (batch, length, count, config.head_width))
        for name, count in heads.items()
    )
    return q, k, v


def attention_outputs(w: Weights, x_BLD: Tensor, out_BLHE: Tensor) -> Tensor:
    """Return the block's output from its attention's output."""
    x_BLD = add(x_BLD, linear(reshape(out_BLHE, x_BLD.shape), w["o_proj.weight"]))
    normed_BLD = rms_norm(x_BLD, w["post_attention_layernorm.weight"], ATTENTION_NORM_EPS)
    gated_BLI = swiglu(linear(normed_BLD, w["gate_proj.weight"]), linear(normed_BLD, w["up_proj.weight"]))
    return add(x_BLD, linear(gated_BLI, w["down_proj.weight"]))


BLOCKS = {"mamba3": mamba3_block, "attention": attention_block}
