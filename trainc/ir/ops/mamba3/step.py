"""One row from a carried state: the recurrence of spec section 2 as it stands, with the channels in their own order.

The chunked form would spend most of its dispatches on reordering and on sums over a single row.
"""

import numpy as np

from trainc.ir.ops.mamba3.rotation import next_angle
from trainc.ir.ops.mamba3.sizes import ANGLES, HEAD, NORM_EPS, STATE, Sizes
from trainc.ir.ops.mamba3.tokens import decay_rate
from trainc.ir.primitives import constant, elementwise, gather, map_, map_many, matmul, reduce_sum, reshape, split
from trainc.ir.scalar import Scalar, cos, equal, exp, index, select, sigmoid, sin, softplus, sqrt
from trainc.ir.tensor import Tensor

_PARTNER = np.arange(STATE) ^ 1
"""The other channel of each channel's pair."""

_ANGLE = np.minimum(np.arange(STATE) // 2, ANGLES - 1)
"""The angle of each channel's pair; what stands for the channels that are not rotated is not used."""


def step(
    u: Tensor,
    dt_bias: Tensor,
    b_norm: Tensor,
    c_norm: Tensor,
    b_bias: Tensor,
    c_bias: Tensor,
    d: Tensor,
    theta: Tensor,
    h: Tensor,
    k_last: Tensor,
    v_last: Tensor,
    sizes: Sizes,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return o and the new theta, h, k_last and v_last for one row u (B, 1, W); `mamba3_continue` has the shapes."""
    z, x, bc, dd_dt, dd_a, trap, angle = split(reshape(u, (sizes.batch, sizes.width)), 1, sizes.widths)
    z, v = (reshape(part, (sizes.batch, sizes.heads, HEAD)) for part in (z, x))

    def weigh(s: Scalar, r: Scalar, w: Scalar, bias: Scalar) -> tuple[Scalar, ...]:
        dt, lam = softplus(s + bias), sigmoid(w)
        alpha = exp(decay_rate(r) * dt)
        return alpha, (1.0 - lam) * dt * alpha, lam * dt

    def turn(theta: Scalar, s: Scalar, bias: Scalar, angle: Scalar) -> tuple[Scalar, ...]:
        turned = next_angle(theta, angle, softplus(s + bias))
        return turned, cos(turned), sin(turned)

    alpha, beta, gamma = map_many("bh,bh,bh,h->bh", weigh, dd_dt, dd_a, trap, dt_bias)
    theta, *cos_sin = map_many("bhr,bh,h,br->bhr", turn, theta, dd_dt, dt_bias, angle)
    sums = reduce_sum("bsn->bs", elementwise(lambda e: e * e, reshape(bc, (sizes.batch, 2, STATE))))
    inverses = elementwise(lambda total: 1.0 / sqrt(total / float(STATE) + NORM_EPS), sums)
    k, q = (
        _rotated(half, reshape(inverse, (sizes.batch,)), norm, bias, cos_sin)
        for half, inverse, norm, bias in zip(
            split(bc, 1, (STATE, STATE)), split(inverses, 1, (1, 1)), (b_norm, c_norm), (b_bias, c_bias), strict=True
        )
    )
    h = map_(
        "bhpn,bh,bh,bhp,bhn,bh,bhp,bhn->bhpn",
        lambda h, alpha, beta, v_last, k_last, gamma, v, k: alpha * h + beta * v_last * k_last + gamma * v * k,
        *(h, alpha, beta, v_last, k_last, gamma, v, k),
    )
    y = matmul("bhpn,bhn->bhp", h, q)
    o = map_("bhp,bhp,bhp,h->bhp", lambda y, v, z, d: (y + d * v) * (z * sigmoid(z)), y, v, z, d)
    return reshape(o, (sizes.batch, 1, sizes.inner)), theta, h, k, v


def _rotated(x_BN: Tensor, inverse_B: Tensor, norm_N: Tensor, bias_HN: Tensor, cos_sin: list[Tensor]) -> Tensor:
    """Return Rot(norm(x) + bias, theta) (B, H, N)."""
    partner, angle = constant(_PARTNER, "i32"), constant(_ANGLE, "i32")

    def element(
        x: Scalar, norm: Scalar, bias: Scalar, x1: Scalar, norm1: Scalar, bias1: Scalar, r: Scalar, c: Scalar, s: Scalar
    ) -> Scalar:
        own, other = x * r * norm + bias, x1 * r * norm1 + bias1
        turned = own * c + select(equal(index(2) & 1, 0), -other, other) * s
        return select(index(2) < 2 * ANGLES, turned, own)

    operands = [x_BN, norm_N, bias_HN]
    partners = [gather(operand, partner, axis=operand.rank - 1) for operand in operands]
    turns = [gather(part, angle, axis=2) for part in cos_sin]
    return map_("bn,n,hn,bn,n,hn,b,bhn,bhn->bhn", element, *operands, *partners, inverse_B, *turns)
