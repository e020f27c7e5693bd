"""Keys and queries: the norms of B and C, the angles, and the rotation (spec section 2).

theta_t = theta_{t-1} + pi tanh(angle_t) dt_t             per head, modulo 2 pi
k_t = Rot(norm(B_t) + B_bias, theta_t), and q_t likewise from C
"""

from dataclasses import dataclass
from math import pi

from trainc.ir.ops.mamba3.channels import block
from trainc.ir.ops.mamba3.sizes import ANGLES, Sizes
from trainc.ir.ops.mamba3.sums import earlier, later, prefix_ones, row, suffix_ones
from trainc.ir.primitives import barrier, elementwise, map_, map_many, matmul, reduce_sum, reshape
from trainc.ir.scalar import Scalar, cos, equal, floor, index, select, sin, tanh
from trainc.ir.tensor import Tensor

# 2 pi in two parts, so that n times the first is exact in float32 for n < 2^16.
_TURN = 6.28125
_TURN_REST = 2.0 * pi - _TURN


def wrap(theta: Scalar) -> Scalar:
    """Return theta modulo 2 pi, in [0, 2 pi)."""
    turns = floor(theta * (0.5 / pi))
    return theta - turns * _TURN - turns * _TURN_REST


@dataclass(frozen=True)
class Rotation:
    """The angles of every token and head.

    Attributes:
        cos: (Q, C, B, H, R).
        sin: (Q, C, B, H, R).
        theta_last: (B, H, R), the angle of the last row, in [0, 2 pi).
    """

    cos: Tensor
    sin: Tensor
    theta_last: Tensor


def rotation(angle: Tensor, dt: Tensor, sizes: Sizes, theta: Tensor | None) -> Rotation:
    """Sum up the angles.

    Args:
        angle: (B, C, Q, R) part of u.
        dt: (B, C, Q, H).
        sizes: Of the mixer.
        theta: (B, H, R) before the first row; None means 0.
    """
    chunks, batch, heads, chunk = sizes.tile_shape
    columns = sizes.pairs * ANGLES
    turn = map_("bcir,bcih->icbhr", lambda s, step: pi * tanh(s) * step, angle, dt)
    inside = barrier(matmul("ij,jm->im", prefix_ones(chunk, dt.dtype), reshape(turn, (chunk, chunks * columns))))
    total_CM = reshape(row(inside, 0, chunk - 1), (chunks, columns))
    # Whole turns are taken off the totals first: their sum stays small and so does its rounding error.
    start_CM = earlier(elementwise(wrap, total_CM))
    if theta is not None:
        start_CM = map_("cm,m->cm", lambda e, first: e + first, start_CM, reshape(theta, (columns,)))
    start_CM = elementwise(wrap, start_CM)

    def cos_sin(e: Scalar, start: Scalar) -> tuple[Scalar, Scalar]:
        whole = wrap(e + start)
        return cos(whole), sin(whole)

    cosine, sine = map_many("im,m->im", cos_sin, inside, reshape(start_CM, (chunks * columns,)))
    last = elementwise(lambda e, start: wrap(e + start), row(total_CM, 0, chunks - 1), row(start_CM, 0, chunks - 1))
    shape = (chunk, chunks, batch, heads, ANGLES)
    return Rotation(
        barrier(reshape(cosine, shape)), barrier(reshape(sine, shape)), reshape(last, (batch, heads, ANGLES))
    )


def rotate(x: Tensor, bias: Tensor, turn: Rotation) -> Tensor:
    """Return Rot(x + bias, theta): o0 = c0 cos - c1 sin, o1 = c0 sin + c1 cos, other channels unchanged.

    Args:
        x: (B, C, Q, J, R), shared by the heads.
        bias: (H, J, R).
        turn: Angles.

    Returns:
        (C, B, H, Q, J, R).
    """

    def element(
        x: Scalar, bias: Scalar, x0: Scalar, x1: Scalar, bias0: Scalar, bias1: Scalar, c: Scalar, s: Scalar
    ) -> Scalar:
        own = x + bias
        other = select(equal(index(4), 0), -(x1 + bias1), x0 + bias0)
        return select(index(4) < 2, own * c + other * s, own)

    x0, x1 = block(x, 3, 0), block(x, 3, 1)
    bias0, bias1 = block(bias, 1, 0), block(bias, 1, 1)
    spec = "bcijr,hjr,bcir,bcir,hr,hr,icbhr,icbhr->cbhijr"
    return map_(spec, element, x, bias, x0, x1, bias0, bias1, turn.cos, turn.sin)


def unrotate(d: Tensor, turn: Rotation, order: str) -> Tensor:
    """Return the gradient before a rotation, Rot(d, -theta).

    Args:
        d: (C, B, H, Q, J, R).
        turn: Angles.
        order: Dimensions of the result, a permutation of "cbhijr".
    """
    blocks = order.index("j")

    def element(d: Scalar, d0: Scalar, d1: Scalar, c: Scalar, s: Scalar) -> Scalar:
        other = select(equal(index(blocks), 0), d1, -d0)
        return select(index(blocks) < 2, d * c + other * s, d)

    d0, d1 = block(d, 4, 0), block(d, 4, 1)
    return map_("cbhijr,cbhir,cbhir,icbhr,icbhr->" + order, element, d, d0, d1, turn.cos, turn.sin)


def d_rotation(
    q: Tensor, k: Tensor, d_q: Tensor, d_k: Tensor, angle: Tensor, dt: Tensor, sizes: Sizes
) -> tuple[Tensor, Tensor]:
    """Return the gradients of angle (B, C, Q, R) and, through the angles, of dt (B, C, Q, H).

        dtheta = dk1 k0 - dk0 k1 + dq1 q0 - dq0 q1    on rotated pairs
        dphi_t = sum of dtheta_s, s >= t
        dangle = pi (1 - tanh^2) sum over heads of dt dphi, and ddt = pi sum over r of tanh dphi

    Args:
        q: Rotated queries (C, B, H, Q, J, R).
        k: Rotated keys, likewise.
        d_q: Gradient of q.
        d_k: Gradient of k.
        angle: (B, C, Q, R) part of u.
        dt: (B, C, Q, H).
        sizes: Of the mixer.
    """
    chunks, batch, heads, chunk = sizes.tile_shape

    def element(
        q0: Scalar, q1: Scalar, dq0: Scalar, dq1: Scalar, k0: Scalar, k1: Scalar, dk0: Scalar, dk1: Scalar
    ) -> Scalar:
        return (dk1 * k0 - dk0 * k1) + (dq1 * q0 - dq0 * q1)

    pairs = [block(x, 4, number) for x in (q, d_q, k, d_k) for number in (0, 1)]
    d_theta = map_(",".join(["cbhir"] * 8) + "->icbhr", element, *pairs)
    columns = sizes.pairs * ANGLES
    inside = barrier(matmul("ij,jm->im", suffix_ones(chunk, dt.dtype), reshape(d_theta, (chunk, chunks * columns))))
    after = later(reshape(row(inside, 0, 0), (chunks, columns)))
    d_phi = map_("im,m->im", lambda e, after: e + after, inside, reshape(after, (chunks * columns,)))
    d_phi = barrier(reshape(d_phi, (chunk, chunks, batch, heads, ANGLES)))
    d_tanh = reduce_sum("bcihr->bcir", map_("icbhr,bcih->bcihr", lambda d, step: pi * d * step, d_phi, dt))
    d_dt = reduce_sum("bcihr->bcih", map_("icbhr,bcir->bcihr", lambda d, s: pi * tanh(s) * d, d_phi, angle))
    return elementwise(lambda d, s: d * (1.0 - tanh(s) * tanh(s)), d_tanh, angle), d_dt
