"""The gradient of the mixer from the zero state, written out by hand.

    dy = do o silu(z),  dz = do o y o silu'(z)
    dP = dy v^T,  dG = dP o W,  R = sum of q_i (exp(cs_i) dy_i)^T,  dS = sum of later R, decayed
    dq = dG k + exp(cs) dy S^T
    dk = dG^T q + vt dS^T
    dv = P^T dy + st (k dS) + D dy,  st_i = exp(cs_last - cs_i) scale_i

What remains, of each token's weights and angles, is in tokens.py and rotation.py.
"""

from dataclasses import dataclass, replace

from trainc.ir.ops.mamba3.channels import from_blocks, weight_from_blocks
from trainc.ir.ops.mamba3.forward import Forward, Weights, by_tile, half, pair_weight, transposed
from trainc.ir.ops.mamba3.norms import d_norm
from trainc.ir.ops.mamba3.parts import Parts
from trainc.ir.ops.mamba3.rotation import d_rotation, unrotate
from trainc.ir.ops.mamba3.sizes import ANGLES, BLOCKS, HEAD, STATE, Sizes
from trainc.ir.ops.mamba3.states import Between, d_leaving, later_decay
from trainc.ir.ops.mamba3.tokens import RowDots, Tokens, d_tokens
from trainc.ir.primitives import barrier, concat, elementwise, map_, matmul, pad_axis, reduce_sum, reshape, slice_axis
from trainc.ir.scalar import Scalar, exp, minimum, sigmoid
from trainc.ir.tensor import Tensor


@dataclass(frozen=True)
class _TileGradients:
    """Gradients in tile order.

    Attributes:
        d_y: (X, Q, P).
        d_q: (X, Q, N).
        d_k: (X, Q, N).
        d_v: (X, Q, P), without the D term.
        after: (X,), the sum of dcs over all later chunks; None for a single chunk.
    """

    d_y: Tensor
    d_q: Tensor
    d_k: Tensor
    d_v: Tensor
    after: Tensor | None = None


def backward(
    part: Parts, weight: Weights, token: Tokens, forward: Forward, d_o: Tensor, sizes: Sizes
) -> tuple[Tensor, ...]:
    """Return the gradients of u, dt_bias, B_norm, C_norm, B_bias, C_bias and D, given that of o (B, L, I)."""
    d_o = pad_axis(d_o, 1, 0, sizes.padded - sizes.length)
    d_o = reshape(d_o, (*sizes.token_shape, sizes.heads, HEAD))
    y = reshape(forward.y, (*sizes.tile_shape, HEAD))
    d_z = map_("bcihp,cbhip,bcihp->bcihp", _d_gate, d_o, y, part.z)
    d_y = barrier(map_("bcihp,bcihp->cbhip", lambda d, z: d * (z * sigmoid(z)), d_o, part.z))
    d_y = reshape(d_y, (sizes.tiles, sizes.chunk, HEAD))
    tile = _tiles(token, forward, d_y, sizes)
    d_by_tile = by_tile(weight.d, sizes)
    dots = _row_dots(weight, forward, tile, d_by_tile, sizes)
    blocks = (*sizes.tile_shape, BLOCKS, ANGLES)
    q, k, d_q, d_k = (reshape(x, blocks) for x in (forward.q, forward.k, tile.d_q, tile.d_k))
    d_angle, d_dt_angle = d_rotation(q, k, d_q, d_k, part.angle, token.dt, sizes)
    d_dd_dt, d_dd_a, d_trap = d_tokens(dots, tile.after, d_dt_angle, part.dd_dt, weight.dt_bias, token, sizes)
    d_bc, d_norms, d_biases = _d_keys(part, weight, forward, d_q, d_k, sizes)
    d_x = map_("xip,xip,x->xip", lambda d, dy, skip: d + skip * dy, tile.d_v, d_y, d_by_tile)
    d_x = map_("cbhip->bcihp", lambda e: e, reshape(d_x, (*sizes.tile_shape, HEAD)))
    pieces = (d_z, d_x, d_bc, d_dd_dt, d_dd_a, d_trap, d_angle)
    rows = [
        reshape(piece, (sizes.batch, sizes.padded, width)) for piece, width in zip(pieces, sizes.widths, strict=True)
    ]
    d_u = slice_axis(concat(rows, axis=2), 1, 0, sizes.length)
    d_d = reduce_sum("cbhi->h", reshape(dots.a, sizes.tile_shape))
    d_dt_bias = reduce_sum("bcih->h", d_dd_dt)
    return d_u, d_dt_bias, *d_norms, *d_biases, d_d


def _d_gate(d: Scalar, y: Scalar, z: Scalar) -> Scalar:
    """Return d y silu'(z), silu'(z) = s (1 + z (1 - s)) with s = sigmoid(z)."""
    s = sigmoid(z)
    return d * y * (s * (1.0 + z * (1.0 - s)))


def _tiles(token: Tokens, forward: Forward, d_y: Tensor, sizes: Sizes) -> _TileGradients:
    """The products of every tile."""
    d_scores = barrier(
        map_(
            "xij,xi,xj,xj,xj->xij",
            lambda d, *row: d * pair_weight(*row),
            matmul("xip,xpj->xij", d_y, transposed(forward.v)),
            token.cs,
            token.cs,
            token.scale,
            token.gamma,
        )
    )
    d_q = matmul("xij,xjn->xin", d_scores, forward.k)
    d_k = matmul("xij,xin->xjn", d_scores, forward.q)
    d_v = matmul("xij,xip->xjp", forward.weighted, d_y)
    tile = _TileGradients(d_y, d_q, d_k, d_v)
    if forward.between is not None:
        tile = _through_states(tile, token, forward, forward.between, sizes)
    return replace(tile, d_q=barrier(tile.d_q), d_k=barrier(tile.d_k), d_v=barrier(tile.d_v))


def _through_states(
    tile: _TileGradients, token: Tokens, forward: Forward, between: Between, sizes: Sizes
) -> _TileGradients:
    """Add the share of the states to the gradients of q, k and v."""
    decayed_dy = barrier(map_("xip,xi->xip", lambda d, cs: d * exp(cs), tile.d_y, token.cs))
    d_state = d_leaving(forward.q, decayed_dy, between, sizes)
    q_share = matmul("xip,xpn->xin", decayed_dy, transposed(between.entering(sizes)))
    k_share = matmul("xip,xpn->xin", forward.decayed_v, transposed(d_state))
    d_v = map_(
        "xip,xip,xi,xi,x->xip",
        lambda d, share, cs, scale, last: d + exp(minimum(last - cs, 0.0)) * scale * share,
        tile.d_v,
        matmul("xin,xnp->xip", forward.k, d_state),
        token.cs,
        token.scale,
        token.cs_last,
    )
    d_q = elementwise(lambda d, share: d + share, tile.d_q, q_share)
    d_k = elementwise(lambda d, share: d + share, tile.d_k, k_share)
    return _TileGradients(tile.d_y, d_q, d_k, d_v, later_decay(d_state, between, sizes))


def _row_dots(weight: Weights, forward: Forward, tile: _TileGradients, d_by_tile: Tensor, sizes: Sizes) -> RowDots:
    """Dot products of the vectors of each row."""
    d_y, v = tile.d_y, forward.v
    a = reduce_sum("xip->xi", map_("xip,xip->xip", lambda dy, v: dy * v, d_y, v))
    without_d = map_("xip,xip,xip,x->xip", lambda dy, y, v, d: dy * (y - d * v), d_y, forward.y, v, d_by_tile)
    yy = reduce_sum("xip->xi", without_d)
    vd = reduce_sum("xip->xi", map_("xip,xip->xip", lambda v, dv: v * dv, v, tile.d_v))
    # Rotating both leaves q.k as it is, so it is taken from what the heads share.
    b, c = (half(forward.normed, number, sizes) for number in (0, 1))
    product = map_(
        "bcijr,bcijr,hjr,hjr->cbhijr", lambda b, c, bb, cb: (b + bb) * (c + cb), b, c, weight.b_bias, weight.c_bias
    )
    qk = reshape(reduce_sum("cbhijr->cbhi", product), (sizes.tiles, sizes.chunk))
    return RowDots(a, yy, vd, qk)


def _d_keys(
    part: Parts, weight: Weights, forward: Forward, d_q: Tensor, d_k: Tensor, sizes: Sizes
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Return the gradients of B with C (T, S, N), of their two norms (N) and of their two biases (H, N)."""
    shared, biases = [], []
    for d in (d_k, d_q):
        # Computed twice, in two orders, so that neither sum needs its terms written to memory.
        total = reduce_sum("bcijrh->bcijr", unrotate(d, forward.turn, "bcijrh"))
        shared.append(reshape(total, (sizes.batch * sizes.padded, 1, STATE)))
        tiles = barrier(reduce_sum("cbhijr->cbhjr", unrotate(d, forward.turn, "cbhijr")))
        biases.append(weight_from_blocks(reduce_sum("cbhjr->hjr", tiles)))
    d_bc, d_norms = d_norm(concat(shared, axis=1), part.bc, weight.norm, forward.bc_inverse)
    d_bc = from_blocks(reshape(d_bc, (sizes.batch * sizes.padded, 2, BLOCKS, ANGLES)))
    rows = (reshape(slice_axis(d_norms, 0, number, 1), (1, BLOCKS, ANGLES)) for number in (0, 1))
    return d_bc, [reshape(weight_from_blocks(row), (STATE,)) for row in rows], biases
