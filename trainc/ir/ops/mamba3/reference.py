"""The mixer as the recurrence that defines it: one token after the other (spec section 2)."""

from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.ir.ops.mamba3.sizes import ANGLES, DECAY_FLOOR, HEAD, NORM_EPS, STATE

Array = npt.NDArray[Any]


def mamba3_reference(
    u: Array, dt_bias: Array, b_norm: Array, c_norm: Array, b_bias: Array, c_bias: Array, d: Array
) -> Array:
    """Return o (B, L, I) for u (B, L, W), from the zero state."""
    batch, length, _ = u.shape
    heads = d.shape[0]
    theta = np.zeros((batch, heads, ANGLES), u.dtype)
    h = np.zeros((batch, heads, HEAD, STATE), u.dtype)
    k_last, v_last = np.zeros_like(h[:, :, 0, :]), np.zeros_like(h[:, :, :, 0])
    return continue_reference(
        u, dt_bias, b_norm, c_norm, b_bias, c_bias, d, theta, h, k_last, v_last, np.array(length)
    )[0]


def continue_reference(
    u: Array,
    dt_bias: Array,
    b_norm: Array,
    c_norm: Array,
    b_bias: Array,
    c_bias: Array,
    d: Array,
    theta: Array,
    h: Array,
    k_last: Array,
    v_last: Array,
    length: Array,
) -> tuple[Array, Array, Array, Array, Array]:
    """Return o and the state (theta, h, k_last, v_last) after the first `length` rows; later rows of o are zero."""
    batch, rows, _ = u.shape
    heads = d.shape[0]
    out = np.zeros((batch, rows, heads * HEAD), u.dtype)
    cuts = np.cumsum([heads * HEAD, heads * HEAD, STATE, STATE, heads, heads, heads])
    for t in range(int(length)):
        z, x, b, c, dd_dt, dd_a, trap, angle = np.split(u[:, t], cuts, axis=-1)
        a = np.minimum(-np.where(dd_a >= 0.0, 1.0 + dd_a, 1.0 / (1.0 + np.abs(dd_a))), -DECAY_FLOOR)
        dt = np.logaddexp(0.0, dd_dt + dt_bias)
        lam = 1.0 / (1.0 + np.exp(-trap))
        theta = np.mod(theta + np.pi * np.tanh(angle)[:, None, :] * dt[:, :, None], 2.0 * np.pi)
        k = _rotate(_norm(b, b_norm)[:, None, :] + b_bias, theta)
        q = _rotate(_norm(c, c_norm)[:, None, :] + c_bias, theta)
        v = x.reshape(batch, heads, HEAD)
        alpha = np.exp(a * dt)
        beta, gamma = (1.0 - lam) * dt * alpha, lam * dt
        h = (
            alpha[:, :, None, None] * h
            + beta[:, :, None, None] * v_last[..., None] * k_last[:, :, None, :]
            + gamma[:, :, None, None] * v[..., None] * k[:, :, None, :]
        )
        y = np.einsum("bhpn,bhn->bhp", h, q) + d[:, None] * v
        out[:, t] = y.reshape(batch, -1) * z / (1.0 + np.exp(-z))
        k_last, v_last = k, v
    return out, theta, h, k_last, v_last


def _norm(x: Array, weight: Array) -> Array:
    return np.asarray(weight * x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + NORM_EPS))


def _rotate(x: Array, theta: Array) -> Array:
    """Rotate components (2r, 2r+1) by theta_r, as complex numbers; components past 2*ANGLES stay."""
    turned = (x[..., 0 : 2 * ANGLES : 2] + 1j * x[..., 1 : 2 * ANGLES : 2]) * np.exp(1j * theta)
    out = x.copy()
    out[..., 0 : 2 * ANGLES : 2], out[..., 1 : 2 * ANGLES : 2] = turned.real, turned.imag
    return out
