"""The Samba language model in plain eager PyTorch: speed peer in float32, oracle in float64.

Nothing here imports trainc, so a benchmark can run it in a process of its own and a test can trust it as an
independent computation. Weights are a dict of tensors by registry name, such as `layers.0.in_proj.weight`;
the dtype of the weights is the dtype of everything. Gradients come from autograd.

Shape suffixes: B batch, L length, D d_model, V vocabulary, H heads, E head width of attention, P head width of the
mixer (64), N state width (128), R rotation angles (32), C chunks, Q positions of a chunk (64), I = H * P.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F

STATE_WIDTH = 128
HEAD_WIDTH = 64
ANGLES = 32
CHUNK = 64
SLOWEST_DECAY = -1e-4
MIXER_NORM_EPS = 1e-5
ATTENTION_NORM_EPS = 1e-6
ROPE_BASE = 10000.0
IGNORED_TARGET = -100

Weights = Mapping[str, torch.Tensor]
MixerForm = Literal["chunked", "serial"]


@dataclass(frozen=True, kw_only=True)
class PeerConfig:
    """What the model needs beside its weights; the field names are those of a Samba config as a dict."""

    layers: tuple[str, ...]
    n_heads: int | None = None
    n_kv_heads: int | None = None
    tie_embeddings: bool = True
    norm_eps: float = 1e-5

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> PeerConfig:
        """Takes the fields it needs from `SambaConfig.to_dict()` (or the same keys in JSON)."""
        heads = config.get("n_heads")
        return cls(
            layers=tuple(config["layers"]),
            n_heads=heads,
            n_kv_heads=config.get("n_kv_heads") or heads,
            tie_embeddings=config.get("tie_embeddings", True),
            norm_eps=config.get("norm_eps", 1e-5),
        )


def weights_from_numpy(
    arrays: Mapping[str, np.ndarray], dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> dict[str, torch.Tensor]:
    """Copies arrays by registry name into leaf tensors that require gradients."""
    return {name: torch.tensor(array, dtype=dtype, device=device).requires_grad_() for name, array in arrays.items()}


def logits(config: PeerConfig, weights: Weights, ids_BL: torch.Tensor, form: MixerForm = "chunked") -> torch.Tensor:
    """Next-token logits.

    Args:
        config: layer kinds and head counts.
        weights: tensors by registry name, all of one floating dtype.
        ids_BL: int64 token ids.
        form: how the Mamba-3 mixer is computed; both forms are equal in exact arithmetic.

    Returns:
        Logits of shape (B, L, V) in the dtype of the weights.
    """
    x_BLD = F.embedding(ids_BL, weights["embed.weight"])
    for index, kind in enumerate(config.layers):
        prefix = f"layers.{index}."
        layer = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
        if kind == "mamba3":
            x_BLD = mamba3_block(layer, x_BLD, form)
        else:
            x_BLD = attention_block(config, layer, x_BLD)
    normed_BLD = rms_norm(x_BLD, weights["norm_f.weight"], config.norm_eps)
    return F.linear(normed_BLD, weights["embed.weight" if config.tie_embeddings else "lm_head.weight"])


def loss_sum(
    config: PeerConfig, weights: Weights, ids_BL: torch.Tensor, targets_BL: torch.Tensor, form: MixerForm = "chunked"
) -> torch.Tensor:
    """Cross-entropy summed over the targets that are not -100; a scalar in the dtype of the weights."""
    logits_BLV = logits(config, weights, ids_BL, form)
    return F.cross_entropy(logits_BLV.flatten(0, 1), targets_BL.flatten(), ignore_index=IGNORED_TARGET, reduction="sum")


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """RMSNorm over the last axis."""
    return F.rms_norm(x, weight.shape, weight, eps)


def attention_block(config: PeerConfig, layer: Weights, x_BLD: torch.Tensor) -> torch.Tensor:
    """One decoder layer: causal grouped-query attention with RoPE, then SwiGLU, each with RMSNorm and residual."""
    normed_BLD = rms_norm(x_BLD, layer["input_layernorm.weight"], ATTENTION_NORM_EPS)
    q_BHLE, k_BHLE, v_BHLE = attention_inputs(config, layer, normed_BLD)
    cos_LE, sin_LE = rope_table(*q_BHLE.shape[-2:], q_BHLE.dtype, q_BHLE.device)
    mixed_BHLE = F.scaled_dot_product_attention(
        rope(q_BHLE, cos_LE, sin_LE),
        rope(k_BHLE, cos_LE, sin_LE),
        v_BHLE,
        is_causal=True,
        enable_gqa=config.n_heads != config.n_kv_heads,
    )
    return attention_outputs(layer, x_BLD, mixed_BHLE)


def attention_inputs(
    config: PeerConfig, layer: Weights, normed_BLD: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, keys and values by head, without positions."""
    q_BHLE = _heads(F.linear(normed_BLD, layer["q_proj.weight"]), config.n_heads)
    k_BHLE = _heads(F.linear(normed_BLD, layer["k_proj.weight"]), config.n_kv_heads)
    return q_BHLE, k_BHLE, _heads(F.linear(normed_BLD, layer["v_proj.weight"]), config.n_kv_heads)


def attention_outputs(layer: Weights, x_BLD: torch.Tensor, mixed_BHLE: torch.Tensor) -> torch.Tensor:
    """The rest of the decoder layer, from what attention has mixed."""
    x_BLD = x_BLD + F.linear(mixed_BHLE.transpose(1, 2).flatten(2), layer["o_proj.weight"])
    normed_BLD = rms_norm(x_BLD, layer["post_attention_layernorm.weight"], ATTENTION_NORM_EPS)
    gate = F.silu(F.linear(normed_BLD, layer["gate_proj.weight"]))
    return x_BLD + F.linear(gate * F.linear(normed_BLD, layer["up_proj.weight"]), layer["down_proj.weight"])


def _heads(x: torch.Tensor, heads: int | None) -> torch.Tensor:
    if heads is None:
        raise ValueError("PeerConfig.n_heads must be an integer when there is an attention layer, got None")
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def rope_table(
    length: int, width: int, dtype: torch.dtype, device: torch.device | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines of every position, (L, E)."""
    rate = ROPE_BASE ** (-torch.arange(0, width, 2, dtype=torch.float64, device=device) / width)
    angle = torch.outer(torch.arange(length, dtype=torch.float64, device=device), rate).repeat(1, 2)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rope(x_BHLE: torch.Tensor, cos_LE: torch.Tensor, sin_LE: torch.Tensor) -> torch.Tensor:
    """Rotates the pairs (d, d + E/2) of every head by its position."""
    low, high = x_BHLE.chunk(2, -1)
    return x_BHLE * cos_LE + torch.cat((-high, low), -1) * sin_LE


@dataclass(frozen=True)
class MixerInputs:
    """Per-token quantities of the mixer after the projection; q and k carry their biases and are rotated."""

    q_BHLN: torch.Tensor
    k_BHLN: torch.Tensor
    v_BHLP: torch.Tensor
    z_BLI: torch.Tensor
    log_decay_BHL: torch.Tensor
    gamma_BHL: torch.Tensor
    left_BHL: torch.Tensor
    theta_BHLR: torch.Tensor


def mamba3_block(layer: Weights, x_BLD: torch.Tensor, form: MixerForm = "chunked") -> torch.Tensor:
    """Mamba-3 block with zero initial state: x + mixer(RMSNorm(x))."""
    normed_BLD = rms_norm(x_BLD, layer["block_norm.weight"], MIXER_NORM_EPS)
    inputs = mixer_inputs(layer, F.linear(normed_BLD, layer["in_proj.weight"]))
    scan = _chunked_scan if form == "chunked" else _serial_scan
    y_BHLP = scan(inputs, layer["D"])
    gated_BLI = y_BHLP.transpose(1, 2).flatten(2) * F.silu(inputs.z_BLI)
    return x_BLD + F.linear(gated_BLI, layer["out_proj.weight"])


def mixer_inputs(layer: Weights, u: torch.Tensor, before_BHR: torch.Tensor | None = None) -> MixerInputs:
    """What the scan reads, from the projected input u (B, L, ...) and the angles before it (zero if not given)."""
    heads = layer["D"].shape[0]
    inner = heads * HEAD_WIDTH
    z_BLI, x_BLI, b_BLN, c_BLN, raw_dt, raw_a, raw_trap, angle_BLR = u.split(
        (inner, inner, STATE_WIDTH, STATE_WIDTH, heads, heads, heads, ANGLES), dim=-1
    )
    raw_a = raw_a.transpose(1, 2)
    # Both branches are evaluated, so each gets an argument that is harmless where the other one is taken.
    growth = torch.where(raw_a >= 0, 1 + raw_a, 1 / (1 - raw_a.clamp(max=0)))
    a_BHL = (-growth).clamp(max=SLOWEST_DECAY)
    dt_BHL = F.softplus(raw_dt + layer["dt_bias"]).transpose(1, 2)
    trap_BHL = torch.sigmoid(raw_trap).transpose(1, 2)
    turn_BHLR = math.pi * dt_BHL[..., None] * torch.tanh(angle_BLR)[:, None]
    theta_BHLR = turn_BHLR.cumsum(2)
    if before_BHR is not None:
        theta_BHLR = theta_BHLR + before_BHR[:, :, None]
    cos_BHLR, sin_BHLR = theta_BHLR.cos(), theta_BHLR.sin()
    return MixerInputs(
        q_BHLN=_rotated(c_BLN, layer["C_norm.weight"], layer["C_bias"], cos_BHLR, sin_BHLR),
        k_BHLN=_rotated(b_BLN, layer["B_norm.weight"], layer["B_bias"], cos_BHLR, sin_BHLR),
        v_BHLP=x_BLI.unflatten(-1, (heads, HEAD_WIDTH)).transpose(1, 2).contiguous(),
        z_BLI=z_BLI,
        log_decay_BHL=a_BHL * dt_BHL,
        gamma_BHL=trap_BHL * dt_BHL,
        left_BHL=(1 - trap_BHL) * dt_BHL,
        theta_BHLR=theta_BHLR,
    )


def _rotated(
    x_BLN: torch.Tensor, norm_N: torch.Tensor, bias_HN: torch.Tensor, cos_BHLR: torch.Tensor, sin_BHLR: torch.Tensor
) -> torch.Tensor:
    """Norm, per-head bias, then rotation of the pairs (2r, 2r+1) for r < 32.

    The result has its channels in the order even | odd | unrotated: q and k are only ever contracted with each other
    over that axis, and so no kernel walks over the large tensors in steps of two.
    """
    normed_BLN = rms_norm(x_BLN, norm_N, MIXER_NORM_EPS)

    def biased(channels: slice) -> torch.Tensor:
        return normed_BLN[:, None, :, channels] + bias_HN[:, None, channels]

    even, odd = biased(slice(0, 2 * ANGLES, 2)), biased(slice(1, 2 * ANGLES, 2))
    rotated_even = torch.addcmul(even * cos_BHLR, odd, sin_BHLR, value=-1)
    rotated_odd = torch.addcmul(even * sin_BHLR, odd, cos_BHLR)
    return torch.cat((rotated_even, rotated_odd, biased(slice(2 * ANGLES, None))), dim=-1)


def _chunked_scan(inputs: MixerInputs, skip_H: torch.Tensor) -> torch.Tensor:
    """Masked products inside chunks of 64 positions, one small product that carries the states over the chunks."""
    length = inputs.v_BHLP.shape[2]
    padding = -length % CHUNK
    chunks = (length + padding) // CHUNK

    def cut(x: torch.Tensor, trailing: int) -> torch.Tensor:
        padded = F.pad(x, (0, 0) * trailing + (0, padding)) if padding else x
        return padded.unflatten(2, (chunks, CHUNK))

    q_BHCQN, k_BHCQN, v_BHCQP = cut(inputs.q_BHLN, 1), cut(inputs.k_BHLN, 1), cut(inputs.v_BHLP, 1)
    gamma_BHCQ = cut(inputs.gamma_BHL, 0)
    # Each token counts with gamma at first and with its successor's left weight from then on, over chunk borders too.
    scale_BHCQ = cut(inputs.gamma_BHL + F.pad(inputs.left_BHL[..., 1:], (0, 1)), 0)
    decay_BHCQ = cut(inputs.log_decay_BHL, 0).cumsum(-1)
    total_BHC = decay_BHCQ[..., -1]

    strictly_lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=decay_BHCQ.device).tril(-1)
    between = (decay_BHCQ[..., :, None] - decay_BHCQ[..., None, :]).masked_fill(~strictly_lower, -math.inf)
    mask = between.exp() * scale_BHCQ[..., None, :] + torch.diag_embed(gamma_BHCQ)
    weights = (q_BHCQN @ k_BHCQN.mT) * mask
    y_BHCQP = torch.addcmul(weights @ v_BHCQP, v_BHCQP, skip_H[:, None, None, None])

    if chunks > 1:
        to_end = (total_BHC[..., None] - decay_BHCQ).exp() * scale_BHCQ
        added_BHCPN = (v_BHCQP * to_end[..., None])[:, :, :-1].mT @ k_BHCQN[:, :, :-1]
        carry = _carry_matrix(total_BHC[..., :-1])
        entering = (carry @ added_BHCPN.flatten(3)).unflatten(3, added_BHCPN.shape[3:])
        later = (q_BHCQN[:, :, 1:] @ entering.mT) * decay_BHCQ[:, :, 1:, :, None].exp()
        y_BHCQP = y_BHCQP + F.pad(later, (0, 0, 0, 0, 1, 0))
    return y_BHCQP.flatten(2, 3)[:, :, :length]


def _carry_matrix(total_BHC: torch.Tensor) -> torch.Tensor:
    """Row c, column d: what is left in the state entering chunk c+1 of what chunk d <= c added."""
    run = total_BHC.cumsum(-1)
    lower = torch.ones(run.shape[-1], run.shape[-1], dtype=torch.bool, device=run.device).tril()
    return (run[..., :, None] - run[..., None, :]).masked_fill(~lower, -math.inf).exp()


def _serial_scan(inputs: MixerInputs, skip_H: torch.Tensor) -> torch.Tensor:
    """The recurrence written down as it is defined, one token after another; slow, only to check the chunked form."""
    decay, gamma = inputs.log_decay_BHL.exp(), inputs.gamma_BHL
    left = inputs.left_BHL * decay
    outer_BHLPN = inputs.v_BHLP[..., :, None] * inputs.k_BHLN[..., None, :]
    state = torch.zeros_like(outer_BHLPN[:, :, 0])
    rows = []
    for t in range(inputs.v_BHLP.shape[2]):
        state = decay[:, :, t, None, None] * state + gamma[:, :, t, None, None] * outer_BHLPN[:, :, t]
        if t > 0:
            state = state + left[:, :, t, None, None] * outer_BHLPN[:, :, t - 1]
        rows.append((state @ inputs.q_BHLN[:, :, t, :, None])[..., 0])
    return torch.stack(rows, 2) + skip_H[:, None, None] * inputs.v_BHLP


class Trainer:
    """The train step: mean cross-entropy, clipping of the global norm, fused AdamW.

    Args:
        config: layer kinds and head counts.
        weights: leaf tensors by registry name (`weights_from_numpy`), updated in place.
        lr: learning rate.
        betas: decay rates of the two moments.
        eps: added to the denominator.
        weight_decay: decoupled decay, applied to every tensor.
        max_norm: bound of the gradients' global L2 norm, or None for no clipping.
        compiled: whether loss and gradients run through `torch.compile`, which compiles them in the first step.
        narrow: whether the loss is computed under `torch.autocast` to bfloat16; the weights stay as they are.
    """

    def __init__(
        self,
        config: PeerConfig,
        weights: dict[str, torch.Tensor],
        *,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        max_norm: float | None = 1.0,
        compiled: bool = False,
        narrow: bool = False,
    ) -> None:
        self.weights = weights
        self.narrow = narrow
        self.max_norm = max_norm
        loss = functools.partial(loss_sum, config)
        self._loss_sum = torch.compile(loss) if compiled else loss
        self.optimizer = torch.optim.AdamW(
            list(weights.values()), lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, fused=True
        )

    def step(self, ids_BL: torch.Tensor, targets_BL: torch.Tensor, *, lr: float | None = None) -> float:
        """One step on int64 ids and targets, with `lr` as the new rate if given; returns the loss before the update."""
        if lr is not None:
            self.optimizer.param_groups[0]["lr"] = lr
        self.optimizer.zero_grad(set_to_none=True)
        count = int((targets_BL != IGNORED_TARGET).sum())
        with torch.autocast(ids_BL.device.type, torch.bfloat16) if self.narrow else contextlib.nullcontext():
            loss = self._loss_sum(self.weights, ids_BL, targets_BL) / max(count, 1)
        loss.backward()
        if self.max_norm is not None:
            torch.nn.utils.clip_grad_norm_(list(self.weights.values()), self.max_norm)
        self.optimizer.step()
        return loss.item()
