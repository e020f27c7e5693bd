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

# Angles are added up in parts of a turn. 2^16 parts make a turn, so whole turns come off without a rounding error.
_PARTS = 65536.0
_RADIANS = 2.0 * pi / _PARTS


def nearest(x: Scalar) -> Scalar:
    """Return the whole number nearest to x."""
    return floor(x + 0.5)


def wrap(parts: Scalar) -> Scalar:
    """Return an angle without its whole turns, from minus half a turn to half a turn."""
    return parts - nearest(parts * (1.0 / _PARTS)) * _PARTS


def next_angle(theta: Scalar, s: Scalar, step: Scalar) -> Scalar:
    """Return the angle of the row after one of angle theta, in [0, 2 pi)."""
    return _not_negative(wrap(theta * (1.0 / _RADIANS) + _turn(s, step)) * _RADIANS)


def _turn(s: Scalar, step: Scalar) -> Scalar:
    """Return what a row adds to the angle, in parts and without whole turns."""
    turns = 0.5 * tanh(s) * step
    return (turns - nearest(turns)) * _PARTS


def _not_negative(theta: Scalar) -> Scalar:
    return select(theta < 0.0, theta + 2.0 * pi, theta)


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

    Every angle is a whole number of parts of a turn and a rest of at most half a part, and each of the two has a sum of
    its own. Sums of whole numbers are exact as long as they stay below 2^24, and the rests are too small to round much,
    so an angle far down the sequence is as good as one at its start.

    Args:
        angle: (B, C, Q, R) part of u.
        dt: (B, C, Q, H).
        sizes: Of the mixer.
        theta: (B, H, R) before the first row; None means 0.
    """
    chunks, batch, heads, chunk = sizes.tile_shape
    columns = sizes.pairs * ANGLES

    def split(s: Scalar, step: Scalar) -> tuple[Scalar, Scalar]:
        parts = _turn(s, step)
        return nearest(parts), parts - nearest(parts)

    def inside_chunks(x: Tensor) -> Tensor:
        return barrier(matmul("ij,jm->im", prefix_ones(chunk, dt.dtype), reshape(x, (chunk, chunks * columns))))

    def totals(inside: Tensor) -> Tensor:
        return reshape(row(inside, 0, chunk - 1), (chunks, columns))

    whole, rest = (inside_chunks(x) for x in map_many("bcir,bcih->icbhr", split, angle, dt))
    start_whole, start_rest = earlier(elementwise(wrap, totals(whole))), earlier(totals(rest))
    if theta is not None:
        first = reshape(theta, (columns,))
        start_rest = map_("cm,m->cm", lambda e, first: e + first * (1.0 / _RADIANS), start_rest, first)

    def radians(whole: Scalar, rest: Scalar, start_whole: Scalar, start_rest: Scalar) -> Scalar:
        return wrap(wrap(whole + start_whole) + (rest + start_rest)) * _RADIANS

    def cos_sin(*sums: Scalar) -> tuple[Scalar, Scalar]:
        return cos(radians(*sums)), sin(radians(*sums))

    starts = [reshape(x, (chunks * columns,)) for x in (start_whole, start_rest)]
    cosine, sine = map_many("im,im,m,m->im", cos_sin, whole, rest, *starts)
    last_sums = (row(x, 0, chunks - 1) for x in (totals(whole), totals(rest), start_whole, start_rest))
    last = elementwise(lambda *sums: _not_negative(radians(*sums)), *last_sums)
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
