"""Decoding of the Samba model in eager PyTorch, one token at a time with caches; the model is samba_torch.py's.

Shape suffixes: as there, and T for the tokens that a cache has room for.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from benchmarks.peers import samba_torch
from benchmarks.peers.samba_torch import PeerConfig, Weights, rms_norm


class Decoder:
    """Feeds tokens to a model and gives the logits of what comes next.

    Args:
        config: Layer kinds and head counts.
        weights: Tensors by registry name.
        rows: Sequences that run side by side.
        max_tokens: Tokens that a sequence can have.
    """

    def __init__(self, config: PeerConfig, weights: Weights, rows: int, max_tokens: int) -> None:
        self._config, self._position = config, 0
        self._embedding = weights["embed.weight"]
        self._head = weights["embed.weight" if config.tie_embeddings else "lm_head.weight"]
        self._norm = weights["norm_f.weight"]
        self._layers: list[_Mixer | _Attention] = []
        for index, kind in enumerate(config.layers):
            prefix = f"layers.{index}."
            layer = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
            block = _Mixer(layer, rows) if kind == "mamba3" else _Attention(config, layer, rows, max_tokens)
            self._layers.append(block)

    @torch.inference_mode()
    def feed(self, ids_B: torch.Tensor) -> torch.Tensor:
        """Appends one token to every sequence; returns the logits (B, V) of the next one."""
        x_BLD = F.embedding(ids_B[:, None], self._embedding)
        for layer in self._layers:
            x_BLD = layer.feed(x_BLD, self._position)
        self._position += 1
        return F.linear(rms_norm(x_BLD, self._norm, self._config.norm_eps), self._head)[:, 0]


class _Attention:
    """Keys and values of the tokens so far."""

    def __init__(self, config: PeerConfig, layer: Weights, rows: int, max_tokens: int) -> None:
        self._config, self._layer = config, layer
        width = layer["q_proj.weight"].shape[0] // config.n_heads
        shape = (rows, config.n_kv_heads, max_tokens, width)
        self._k_BHTE, self._v_BHTE = (layer["q_proj.weight"].new_zeros(shape) for _ in range(2))
        self._cos_TE, self._sin_TE = samba_torch.rope_table(max_tokens, width, self._k_BHTE.dtype)

    def feed(self, x_BLD: torch.Tensor, position: int) -> torch.Tensor:
        config, layer, here, seen = self._config, self._layer, slice(position, position + 1), slice(0, position + 1)
        normed_BLD = rms_norm(x_BLD, layer["input_layernorm.weight"], samba_torch.ATTENTION_NORM_EPS)
        q_BHLE, k_BHLE, v_BHLE = samba_torch.attention_inputs(config, layer, normed_BLD)
        self._k_BHTE[:, :, here] = samba_torch.rope(k_BHLE, self._cos_TE[here], self._sin_TE[here])
        self._v_BHTE[:, :, here] = v_BHLE
        mixed_BHLE = F.scaled_dot_product_attention(
            samba_torch.rope(q_BHLE, self._cos_TE[here], self._sin_TE[here]),
            self._k_BHTE[:, :, seen],
            self._v_BHTE[:, :, seen],
            enable_gqa=config.n_heads != config.n_kv_heads,
        )
        return samba_torch.attention_outputs(layer, x_BLD, mixed_BHLE)


class _Mixer:
    """The recurrent state of a Mamba-3 layer: state, angles, and key and value of the token before."""

    def __init__(self, layer: Weights, rows: int) -> None:
        heads, weight = layer["D"].shape[0], layer["D"]
        value, key = samba_torch.HEAD_WIDTH, samba_torch.STATE_WIDTH
        self._layer = layer
        self._state_XPN = weight.new_zeros(rows * heads, value, key)  # X = B * H
        self._theta_BHR = weight.new_zeros(rows, heads, samba_torch.ANGLES)
        self._k_BHLN, self._v_BHLP = weight.new_zeros(rows, heads, 1, key), weight.new_zeros(rows, heads, 1, value)

    def feed(self, x_BLD: torch.Tensor, position: int) -> torch.Tensor:
        layer, eps = self._layer, samba_torch.MIXER_NORM_EPS
        u = F.linear(rms_norm(x_BLD, layer["block_norm.weight"], eps), layer["in_proj.weight"])
        token = samba_torch.mixer_inputs(layer, u, self._theta_BHR)
        decay_BHL = token.log_decay_BHL.exp()
        values = torch.cat(
            (self._v_BHLP * (token.left_BHL * decay_BHL)[..., None], token.v_BHLP * token.gamma_BHL[..., None]), 2
        )
        keys = torch.cat((self._k_BHLN, token.k_BHLN), 2)
        self._state_XPN.mul_(decay_BHL.reshape(-1, 1, 1)).baddbmm_(values.flatten(0, 1).mT, keys.flatten(0, 1))
        y_BHLP = (token.q_BHLN.flatten(0, 1) @ self._state_XPN.mT).view_as(token.v_BHLP)
        y_BHLP = torch.addcmul(y_BHLP, token.v_BHLP, layer["D"][:, None, None])
        self._theta_BHR, self._k_BHLN, self._v_BHLP = token.theta_BHLR[:, :, 0], token.k_BHLN, token.v_BHLP
        gated_BLI = y_BHLP.transpose(1, 2).flatten(2) * F.silu(token.z_BLI)
        return x_BLD + F.linear(gated_BLI, layer["out_proj.weight"])
