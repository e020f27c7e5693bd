"""Per-token quantities of every head: the step dt, the decay rate A, the trapezoid weight lam, and what follows.

    gamma_t = lam_t dt_t                              weight of a token in its own output
    scale_t = gamma_t + dt_{t+1} (1 - lam_{t+1})      weight of a token in all later outputs; dt past the end is 0
    cs_i    = sum of A_j dt_j, j <= i in the chunk    logarithm of the decay since the chunk began

(spec sections 2 and 2.1)
"""

from dataclasses import dataclass

from trainc.ir.ops.mamba3.parts import Parts
from trainc.ir.ops.mamba3.sizes import DECAY_FLOOR, Sizes
from trainc.ir.ops.mamba3.sums import prefix_ones, row, suffix_ones
from trainc.ir.primitives import barrier, map_, map_many, matmul, pad_axis, reshape, slice_axis
from trainc.ir.scalar import Scalar, index, maximum, minimum, select, sigmoid, softplus
from trainc.ir.tensor import Tensor


@dataclass(frozen=True)
class RowDots:
    """Dot products of a row's vectors, each (X, Q).

    Attributes:
        a: dy.v
        yy: dy.(y - D v)
        vd: v.dv, dv without its D term.
        qk: q.k
    """

    a: Tensor
    yy: Tensor
    vd: Tensor
    qk: Tensor


@dataclass(frozen=True)
class Tokens:
    """Small tensors, one element a token and head.

    Attributes:
        dt: (B, C, Q, H), zero on rows that do not count.
        lam: (B, C, Q, H).
        a: (B, C, Q, H), the decay rate A.
        lead: (B, C, Q, H), dt (1 - lam): the weight a token gives to the one before it.
        gamma: (X, Q).
        scale: (X, Q).
        cs: (X, Q).
        cs_last: (X,), cs at the end of each chunk.
    """

    dt: Tensor
    lam: Tensor
    a: Tensor
    lead: Tensor
    gamma: Tensor
    scale: Tensor
    cs: Tensor
    cs_last: Tensor


def tokens(part: Parts, dt_bias: Tensor, sizes: Sizes, length: Tensor | None = None) -> Tokens:
    """Compute the per-token quantities.

    Args:
        part: Pieces of u.
        dt_bias: (H).
        sizes: Of the mixer.
        length: i32 scalar, rows that count; None means all rows before padding.
    """

    def discretize(s: Scalar, r: Scalar, w: Scalar, bias: Scalar, *count: Scalar) -> tuple[Scalar, ...]:
        dt = softplus(s + bias)
        if count or sizes.padded > sizes.length:
            position = index(1) * sizes.chunk + index(2)
            dt = select(position < (count[0] if count else sizes.length), dt, 0.0)
        lam = sigmoid(w)
        return dt, lam, decay_rate(r), dt * (1.0 - lam)

    dynamic = () if length is None else (length,)
    spec = "bcih,bcih,bcih,h" + ",." * len(dynamic) + "->bcih"
    dt, lam, a, lead = map_many(spec, discretize, part.dd_dt, part.dd_a, part.trap, dt_bias, *dynamic)
    gamma, scale, rate = map_many(
        "bcih,bcih,bcih,bcih->cbhi", lambda t, w, r, n: (w * t, w * t + n, r * t), dt, lam, a, _from_next(lead, sizes)
    )
    flat = (sizes.tiles, sizes.chunk)
    # cs_i = sum over j of rate_j [j <= i]; the barrier because maps read cs both as cs_i and as cs_j.
    cs = barrier(matmul("xj,ji->xi", reshape(rate, flat), suffix_ones(sizes.chunk, dt.dtype)))
    return Tokens(dt, lam, a, lead, reshape(gamma, flat), reshape(scale, flat), cs, row(cs, 1, sizes.chunk - 1))


def decay_rate(s: Scalar) -> Scalar:
    """Return A = min(-a(s), -floor), a(s) = 1 + s for s >= 0 and 1/(1 - s) below."""
    positive = select(s >= 0.0, 1.0 + s, 1.0 / (1.0 - minimum(s, 0.0)))
    return -maximum(positive, DECAY_FLOOR)


def _from_next(x: Tensor, sizes: Sizes) -> Tensor:
    """Return, on each row of (B, C, Q, H), the value of the row after it; zero on the last."""
    rows = pad_axis(reshape(x, (sizes.batch, sizes.padded, sizes.heads)), 1, 0, 1)
    return reshape(slice_axis(rows, 1, 1, sizes.padded), x.shape)


def _from_previous(x: Tensor, sizes: Sizes) -> Tensor:
    """Return, on each row of (B, C, Q, H), the value of the row before it; zero on the first."""
    rows = pad_axis(reshape(x, (sizes.batch, sizes.padded, sizes.heads)), 1, 1, 0)
    return reshape(slice_axis(rows, 1, 0, sizes.padded), x.shape)


def d_tokens(
    row_dots: RowDots,
    after: Tensor | None,
    d_dt_angle: Tensor,
    dd_dt: Tensor,
    dt_bias: Tensor,
    forward: Tokens,
    sizes: Sizes,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of dd_dt, dd_A and trap, each (B, C, Q, H), from the zero initial state.

    With the dot products of each row, and g = A dt:
        dcs_i    = yy_i - vd_i
        dscale_i = (vd_i - gamma_i qk_i a_i) / scale_i
        dgamma_i = qk_i a_i + dscale_i
        m_i      = dscale_{i-1}                       (through scale of the token before)
        dg_i     = sum of dcs_s over all s >= i       (to the end of the sequence)
        ddt_i    = dgamma_i lam_i + m_i (1 - lam_i) + dg_i A_i + (angle part)
        dA_i     = dg_i dt_i
        dtrap_i  = (dgamma_i - m_i) dt_i lam_i (1 - lam_i)

    Args:
        row_dots: Dot products of each row.
        after: (X,), the sum of dcs over all later chunks; None means 0.
        d_dt_angle: (B, C, Q, H), gradient of dt through the angles.
        dd_dt: (B, C, Q, H) part of u.
        dt_bias: (H).
        forward: The per-token quantities.
        sizes: Of the mixer.
    """

    def split_weight(a: Scalar, vd: Scalar, qk: Scalar, gamma: Scalar, scale: Scalar) -> tuple[Scalar, Scalar]:
        own = qk * a
        # scale is 0 only where dt is, or on the last row: there the quotient is not used.
        d_scale = select(scale > 0.0, (vd - gamma * own) / select(scale > 0.0, scale, 1.0), 0.0)
        return own + d_scale, d_scale

    d_gamma, d_scale = map_many(
        "xi,xi,xi,xi,xi->xi", split_weight, row_dots.a, row_dots.vd, row_dots.qk, forward.gamma, forward.scale
    )
    d_rate = _suffix_sum(map_("xi,xi->xi", lambda yy, vd: yy - vd, row_dots.yy, row_dots.vd), after)
    d_scale_BCQH = map_("cbhi->bcih", lambda e: e, reshape(d_scale, sizes.tile_shape))

    def element(
        dg: Scalar,
        d_gamma: Scalar,
        m: Scalar,
        by_angle: Scalar,
        s: Scalar,
        bias: Scalar,
        dt: Scalar,
        lam: Scalar,
        a: Scalar,
    ) -> tuple[Scalar, Scalar, Scalar]:
        d_dt = d_gamma * lam + m * (1.0 - lam) + dg * a + by_angle
        # dt is 0 on rows that do not count.
        d_s = select(dt > 0.0, d_dt * sigmoid(s + bias), 0.0)
        # The derivative of A is -1 for A <= -1 and -A^2 above, 0 where the floor holds.
        slope = select(a <= -1.0, -1.0, -(a * a))
        d_a = select(a < -DECAY_FLOOR, dg * dt * slope, 0.0)
        return d_s, d_a, (d_gamma - m) * dt * lam * (1.0 - lam)

    return map_many(  # type: ignore[return-value]
        "cbhi,cbhi,bcih,bcih,bcih,h,bcih,bcih,bcih->bcih",
        element,
        reshape(d_rate, sizes.tile_shape),
        reshape(d_gamma, sizes.tile_shape),
        _from_previous(d_scale_BCQH, sizes),
        d_dt_angle,
        dd_dt,
        dt_bias,
        forward.dt,
        forward.lam,
        forward.a,
    )


def _suffix_sum(x_XQ: Tensor, after_X: Tensor | None) -> Tensor:
    """Return the sum over this and all later rows of a chunk, plus what comes after the chunk."""
    inside = matmul("xj,ji->xi", x_XQ, prefix_ones(x_XQ.shape[1], x_XQ.dtype))
    return inside if after_X is None else map_("xi,x->xi", lambda e, after: e + after, inside, after_X)
