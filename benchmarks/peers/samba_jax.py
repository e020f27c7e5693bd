"""The Samba language model in plain JAX, in float32: a speed peer whose whole train step is one compiled function.

Nothing here imports trainc. Weights are a dict of arrays by registry name, such as `layers.0.in_proj.weight`; gradients
come from `jax.value_and_grad`; weights and moments are donated to each step, which updates them in place.

Shape suffixes: B batch, L length, D d_model, V vocabulary, H heads, E head width of attention, P head width of the
mixer (64), N state width (128), R rotation angles (32), C chunks, Q positions of a chunk (64), I = H * P.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

STATE_WIDTH = 128
HEAD_WIDTH = 64
ANGLES = 32
CHUNK = 64
SLOWEST_DECAY = -1e-4
MIXER_NORM_EPS = 1e-5
ATTENTION_NORM_EPS = 1e-6
ROPE_BASE = 10000.0
CLIP_EPS = 1e-6

Weights = dict[str, jax.Array]


def mean_loss(config: Mapping[str, Any], weights: Weights, ids_BL: jax.Array, targets_BL: jax.Array) -> jax.Array:
    """Mean cross-entropy of next-token prediction; every target counts.

    Args:
        config: A Samba config as a dict.
        weights: Arrays by registry name, float32.
        ids_BL: int32 token ids.
        targets_BL: int32 ids of the tokens that follow.
    """
    x_BLD = weights["embed.weight"][ids_BL]
    for index, kind in enumerate(config["layers"]):
        prefix = f"layers.{index}."
        layer = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
        x_BLD = mamba3_block(layer, x_BLD) if kind == "mamba3" else attention_block(config, layer, x_BLD)
    normed_BLD = rms_norm(x_BLD, weights["norm_f.weight"], config["norm_eps"])
    logits_BLV = linear(normed_BLD, weights["embed.weight" if config["tie_embeddings"] else "lm_head.weight"])
    target_BL = jnp.take_along_axis(logits_BLV, targets_BL[..., None], -1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits_BLV, -1) - target_BL)


def linear(x: jax.Array, weight: jax.Array) -> jax.Array:
    """Product with the transposed weight."""
    return x @ weight.T


def rms_norm(x: jax.Array, weight: jax.Array, eps: float) -> jax.Array:
    """RMSNorm over the last axis."""
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + eps) * weight


def attention_block(config: Mapping[str, Any], layer: Weights, x_BLD: jax.Array) -> jax.Array:
    """One decoder layer: causal grouped-query attention with RoPE, then SwiGLU, each with RMSNorm and residual."""
    normed_BLD = rms_norm(x_BLD, layer["input_layernorm.weight"], ATTENTION_NORM_EPS)
    q_BLHE = _heads(linear(normed_BLD, layer["q_proj.weight"]), config["n_heads"])
    k_BLHE = _heads(linear(normed_BLD, layer["k_proj.weight"]), config["n_kv_heads"])
    v_BLHE = _heads(linear(normed_BLD, layer["v_proj.weight"]), config["n_kv_heads"])
    cos_LE, sin_LE = _rope_table(*q_BLHE.shape[1::2])
    mixed_BLHE = jax.nn.dot_product_attention(
        _rope(q_BLHE, cos_LE, sin_LE), _rope(k_BLHE, cos_LE, sin_LE), v_BLHE, is_causal=True
    )
    x_BLD = x_BLD + linear(mixed_BLHE.reshape(x_BLD.shape), layer["o_proj.weight"])
    normed_BLD = rms_norm(x_BLD, layer["post_attention_layernorm.weight"], ATTENTION_NORM_EPS)
    gate = jax.nn.silu(linear(normed_BLD, layer["gate_proj.weight"]))
    return x_BLD + linear(gate * linear(normed_BLD, layer["up_proj.weight"]), layer["down_proj.weight"])


def _heads(x_BLW: jax.Array, heads: int) -> jax.Array:
    return x_BLW.reshape(*x_BLW.shape[:2], heads, -1)


def _rope_table(length: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    rate = ROPE_BASE ** (-np.arange(0, width, 2) / width)
    angle = np.tile(np.outer(np.arange(length), rate), (1, 2))
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def _rope(x_BLHE: jax.Array, cos_LE: np.ndarray, sin_LE: np.ndarray) -> jax.Array:
    low, high = jnp.split(x_BLHE, 2, -1)
    return x_BLHE * cos_LE[:, None] + jnp.concatenate((-high, low), -1) * sin_LE[:, None]


class _MixerInputs(NamedTuple):
    """Per-token quantities of the mixer after the projection; q and k carry their biases and are rotated."""

    q_BHLN: jax.Array
    k_BHLN: jax.Array
    v_BHLP: jax.Array
    z_BLI: jax.Array
    log_decay_BHL: jax.Array
    gamma_BHL: jax.Array
    left_BHL: jax.Array


def mamba3_block(layer: Weights, x_BLD: jax.Array) -> jax.Array:
    """Mamba-3 block with zero initial state: x + mixer(RMSNorm(x))."""
    normed_BLD = rms_norm(x_BLD, layer["block_norm.weight"], MIXER_NORM_EPS)
    inputs = _mixer_inputs(layer, linear(normed_BLD, layer["in_proj.weight"]))
    y_BHLP = _chunked_scan(inputs, layer["D"])
    gated_BLI = y_BHLP.swapaxes(1, 2).reshape(inputs.z_BLI.shape) * jax.nn.silu(inputs.z_BLI)
    return x_BLD + linear(gated_BLI, layer["out_proj.weight"])


def _mixer_inputs(layer: Weights, u: jax.Array) -> _MixerInputs:
    heads = layer["D"].shape[0]
    inner = heads * HEAD_WIDTH
    widths = (inner, inner, STATE_WIDTH, STATE_WIDTH, heads, heads, heads)
    z_BLI, x_BLI, b_BLN, c_BLN, raw_dt, raw_a, raw_trap, angle_BLR = jnp.split(u, np.cumsum(widths), -1)
    raw_a = raw_a.swapaxes(1, 2)
    growth = jnp.where(raw_a >= 0, 1 + raw_a, 1 / (1 - jnp.minimum(raw_a, 0)))
    a_BHL = jnp.minimum(-growth, SLOWEST_DECAY)
    dt_BHL = jax.nn.softplus(raw_dt + layer["dt_bias"]).swapaxes(1, 2)
    trap_BHL = jax.nn.sigmoid(raw_trap).swapaxes(1, 2)
    theta_BHLR = jnp.cumsum(math.pi * dt_BHL[..., None] * jnp.tanh(angle_BLR)[:, None], 2)
    cos_BHLR, sin_BHLR = jnp.cos(theta_BHLR), jnp.sin(theta_BHLR)
    return _MixerInputs(
        q_BHLN=_rotated(c_BLN, layer["C_norm.weight"], layer["C_bias"], cos_BHLR, sin_BHLR),
        k_BHLN=_rotated(b_BLN, layer["B_norm.weight"], layer["B_bias"], cos_BHLR, sin_BHLR),
        v_BHLP=_heads(x_BLI, heads).swapaxes(1, 2),
        z_BLI=z_BLI,
        log_decay_BHL=a_BHL * dt_BHL,
        gamma_BHL=trap_BHL * dt_BHL,
        left_BHL=(1 - trap_BHL) * dt_BHL,
    )


def _rotated(
    x_BLN: jax.Array, norm_N: jax.Array, bias_HN: jax.Array, cos_BHLR: jax.Array, sin_BHLR: jax.Array
) -> jax.Array:
    """Norm, per-head bias, then rotation of the pairs (2r, 2r+1) for r < 32; channels in the order even, odd, others.

    The order is free, since q and k are only ever contracted with each other over that axis.
    """
    biased_BHLN = rms_norm(x_BLN, norm_N, MIXER_NORM_EPS)[:, None] + bias_HN[:, None]
    even, odd = biased_BHLN[..., 0 : 2 * ANGLES : 2], biased_BHLN[..., 1 : 2 * ANGLES : 2]
    rotated = (even * cos_BHLR - odd * sin_BHLR, even * sin_BHLR + odd * cos_BHLR)
    return jnp.concatenate((*rotated, biased_BHLN[..., 2 * ANGLES :]), -1)


def _chunked_scan(inputs: _MixerInputs, skip_H: jax.Array) -> jax.Array:
    """Masked products inside chunks of 64 positions, one small product that carries the states over the chunks."""
    length = inputs.v_BHLP.shape[2]
    padding = -length % CHUNK

    def cut(x: jax.Array) -> jax.Array:
        padded = jnp.pad(x, [(0, 0), (0, 0), (0, padding)] + [(0, 0)] * (x.ndim - 3))
        return padded.reshape(*x.shape[:2], -1, CHUNK, *x.shape[3:])

    q_BHCQN, k_BHCQN, v_BHCQP = cut(inputs.q_BHLN), cut(inputs.k_BHLN), cut(inputs.v_BHLP)
    gamma_BHCQ = cut(inputs.gamma_BHL)
    # Each token counts with gamma at first and with its successor's left weight from then on, over chunk borders too.
    scale_BHCQ = cut(inputs.gamma_BHL + jnp.pad(inputs.left_BHL[..., 1:], ((0, 0), (0, 0), (0, 1))))
    decay_BHCQ = jnp.cumsum(cut(inputs.log_decay_BHL), -1)
    total_BHC = decay_BHCQ[..., -1]

    strictly_lower = np.tri(CHUNK, k=-1, dtype=bool)
    between = jnp.where(strictly_lower, decay_BHCQ[..., :, None] - decay_BHCQ[..., None, :], -jnp.inf)
    mask = jnp.exp(between) * scale_BHCQ[..., None, :] + gamma_BHCQ[..., None] * np.eye(CHUNK, dtype=np.float32)
    y_BHCQP = ((q_BHCQN @ k_BHCQN.mT) * mask) @ v_BHCQP + v_BHCQP * skip_H[:, None, None, None]

    if y_BHCQP.shape[2] > 1:
        to_end_BHCQ = jnp.exp(total_BHC[..., None] - decay_BHCQ) * scale_BHCQ
        added_BHCPN = (v_BHCQP * to_end_BHCQ[..., None])[:, :, :-1].mT @ k_BHCQN[:, :, :-1]
        entering_BHCPN = jnp.einsum("bhcd,bhdpn->bhcpn", _carry_matrix(total_BHC[..., :-1]), added_BHCPN)
        later = (q_BHCQN[:, :, 1:] @ entering_BHCPN.mT) * jnp.exp(decay_BHCQ)[:, :, 1:, :, None]
        y_BHCQP = y_BHCQP + jnp.pad(later, ((0, 0), (0, 0), (1, 0), (0, 0), (0, 0)))
    return y_BHCQP.reshape(*y_BHCQP.shape[:2], -1, HEAD_WIDTH)[:, :, :length]


def _carry_matrix(total_BHC: jax.Array) -> jax.Array:
    """Row c, column d: what is left in the state entering chunk c+1 of what chunk d <= c added."""
    run = jnp.cumsum(total_BHC, -1)
    lower = np.tri(run.shape[-1], dtype=bool)
    return jnp.exp(jnp.where(lower, run[..., :, None] - run[..., None, :], -jnp.inf))


class State(NamedTuple):
    """What a step changes: weights, both moments and the number of steps taken."""

    weights: Weights
    m: Weights
    v: Weights
    count: jax.Array


def initial_state(arrays: Mapping[str, np.ndarray]) -> State:
    """The state before the first step, with copies of the weights."""
    weights = {name: jnp.array(array, jnp.float32) for name, array in arrays.items()}
    m, v = ({name: jnp.zeros_like(weight) for name, weight in weights.items()} for _ in range(2))
    return State(weights, m, v, jnp.zeros((), jnp.int32))


def make_step(
    config: Mapping[str, Any], optimizer: Mapping[str, Any]
) -> Callable[[State, jax.Array, jax.Array], tuple[State, jax.Array]]:
    """The train step: mean cross-entropy, clipping of the global norm, AdamW.

    Args:
        config: A Samba config as a dict.
        optimizer: `lr`, `betas`, `eps`, `weight_decay` and `max_norm` (None for no clipping).

    Returns:
        A compiled function from state, ids and targets to the new state and the loss before the update. It takes the
        old state's memory.
    """

    def step(state: State, ids_BL: jax.Array, targets_BL: jax.Array) -> tuple[State, jax.Array]:
        loss, grads = jax.value_and_grad(lambda weights: mean_loss(config, weights, ids_BL, targets_BL))(state.weights)
        if optimizer["max_norm"] is not None:
            norm = jnp.sqrt(sum(jnp.sum(jnp.square(grad)) for grad in grads.values()))
            factor = jnp.minimum(1.0, optimizer["max_norm"] / (norm + CLIP_EPS))
            grads = jax.tree.map(lambda grad: grad * factor, grads)
        return _adamw(optimizer, state, grads), loss

    return jax.jit(step, donate_argnums=0)


def _adamw(optimizer: Mapping[str, Any], state: State, grads: Weights) -> State:
    lr, (beta1, beta2), eps = optimizer["lr"], optimizer["betas"], optimizer["eps"]
    count = state.count + 1
    m = jax.tree.map(lambda old, grad: beta1 * old + (1 - beta1) * grad, state.m, grads)
    v = jax.tree.map(lambda old, grad: beta2 * old + (1 - beta2) * jnp.square(grad), state.v, grads)
    bias1, bias2 = 1 - beta1**count, 1 - beta2**count

    def updated(weight: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
        direction = (m / bias1) / (jnp.sqrt(v / bias2) + eps)
        return weight * (1 - lr * optimizer["weight_decay"]) - lr * direction

    return State(jax.tree.map(updated, state.weights, m, v), m, v, count)
