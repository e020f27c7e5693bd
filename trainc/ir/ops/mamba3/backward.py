"""The gradient of the mixer from the zero state, written out by hand.

    dy = do o silu(z),  dz = do o y o silu'(z)
    dP = dy v^T,  dG = dP o W,  R = sum of q_i (exp(cs_i) dy_i)^T,  dS = sum of later R, decayed
    dq = dG k + exp(cs) dy S^T
    dk = dG^T q + vt dS^T
    dv = P^T dy + st (k dS) + D dy,  st_i = exp(cs_last - cs_i) scale_i

What remains, of each token's weights and angles, is in tokens.py and rotation.py.
"""

from dataclasses import dataclass

from trainc.ir.ops.mamba3.channels import from_blocks
from trainc.ir.ops.mamba3.forward import Forward, Weights, by_tile, pair_weight, transposed
from trainc.ir.ops.mamba3.norms import d_norm
from trainc.ir.ops.mamba3.parts import Parts
from trainc.ir.ops.mamba3.rotation import d_rotation, unrotate
from trainc.ir.ops.mamba3.sizes import ANGLES, BLOCKS, HEAD, STATE, Sizes
from trainc.ir.ops.mamba3.states import carry_back
from trainc.ir.ops.mamba3.sums import row
from trainc.ir.ops.mamba3.tokens import RowDots, Tokens, d_tokens
from trainc.ir.primitives import barrier, concat, map_, map_many, matmul, pad_axis, reduce_sum, reshape, slice_axis
from trainc.ir.scalar import Scalar, exp, minimum, sigmoid
from trainc.ir.tensor import Tensor


@dataclass(frozen=True)
class _TileGradients:
    """Gradients in tile order: of q and k (X, Q, N), and of v without its D term (X, Q, P)."""

    d_q: Tensor
    d_k: Tensor
    d_v: Tensor


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
    dots = _row_dots(forward, tile, d_y, d_by_tile)
    blocks = (*sizes.tile_shape, BLOCKS, ANGLES)
    q, k, d_q, d_k = (reshape(x, blocks) for x in (forward.q, forward.k, tile.d_q, tile.d_k))
    d_angle, d_dt_angle = d_rotation(q, k, d_q, d_k, part.angle, token.dt, sizes)
    d_dd_dt, d_dd_a, d_trap = d_tokens(dots, d_dt_angle, part.dd_dt, weight.dt_bias, token, sizes)
    d_bc, d_norms, d_b_bias, d_c_bias = _d_keys(part, weight, forward, d_q, d_k, sizes)
    d_x = map_("xip,xip,x->xip", lambda d, dy, skip: d + skip * dy, tile.d_v, d_y, d_by_tile)
    d_x = map_("cbhip->bcihp", lambda e: e, reshape(d_x, (*sizes.tile_shape, HEAD)))
    pieces = (d_z, d_x, d_bc, d_dd_dt, d_dd_a, d_trap, d_angle)
    rows = [
        reshape(piece, (sizes.batch, sizes.padded, width)) for piece, width in zip(pieces, sizes.widths, strict=True)
    ]
    d_u = slice_axis(concat(rows, axis=2), 1, 0, sizes.length)
    d_d = reduce_sum("cbhi->h", reshape(dots.a, sizes.tile_shape))
    d_dt_bias = reduce_sum("bcih->h", d_dd_dt)
    return d_u, d_dt_bias, row(d_norms, 0, 0), row(d_norms, 0, 1), d_b_bias, d_c_bias, d_d


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
    decayed_dy = barrier(map_("xip,xi->xip", lambda d, cs: d * exp(cs), d_y, token.cs))
    pairs, flat = sizes.batch * sizes.heads, (sizes.tiles, STATE, HEAD)
    d_entering = matmul("xin,xip->xnp", forward.q, decayed_dy)
    d_entering = reshape(d_entering, (sizes.chunks, pairs, STATE * HEAD))
    d_state = barrier(reshape(carry_back(forward.decay, d_entering), flat))
    entering_PN, d_state_PN = transposed(reshape(forward.states, flat)), transposed(d_state)
    d_q = _add(matmul("xij,xjn->xin", d_scores, forward.k), matmul("xip,xpn->xin", decayed_dy, entering_PN))
    d_k = _add(matmul("xij,xin->xjn", d_scores, forward.q), matmul("xjp,xpn->xjn", forward.decayed_v, d_state_PN))
    d_v = map_(
        "xip,xip,xi,xi,x->xip",
        lambda inside, after, cs, scale, last: inside + exp(minimum(last - cs, 0.0)) * scale * after,
        matmul("xij,xip->xjp", forward.weighted, d_y),
        matmul("xjn,xnp->xjp", forward.k, d_state),
        token.cs,
        token.scale,
        token.cs_last,
    )
    return _TileGradients(barrier(d_q), barrier(d_k), barrier(d_v))


def _add(a: Tensor, b: Tensor) -> Tensor:
    return map_("xin,xin->xin", lambda a, b: a + b, a, b)


def _row_dots(forward: Forward, tile: _TileGradients, d_y: Tensor, d_by_tile: Tensor) -> RowDots:
    """Dot products of the vectors of each row."""
    a, yy, vd = (
        reduce_sum("xip->xi", product)
        for product in map_many(
            "xip,xip,xip,xip,x->xip",
            lambda dy, v, y, d_v, skip: (dy * v, dy * (y - skip * v), v * d_v),
            d_y,
            forward.v,
            forward.y,
            tile.d_v,
            d_by_tile,
        )
    )
    qk = reduce_sum("xin->xi", map_("xin,xin->xin", lambda q, k: q * k, forward.q, forward.k))
    return RowDots(a, yy, vd, qk)


def _d_keys(
    part: Parts, weight: Weights, forward: Forward, d_q: Tensor, d_k: Tensor, sizes: Sizes
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of B with C (T, S, N), of their norms (S, N) and of the two biases (H, N)."""
    shared, biases = [], []
    for d in (d_k, d_q):
        d_before = barrier(reshape(unrotate(d, forward.turn), (*sizes.tile_shape, STATE)))
        total = reduce_sum("cbhin->bcin", d_before)
        shared.append(reshape(total, (sizes.batch * sizes.padded, 1, STATE)))
        biases.append(_from_blocks(reduce_sum("cbhin->hn", d_before)))
    d_bc, d_norms = d_norm(concat(shared, axis=1), part.bc, weight.norm, forward.bc_inverse)
    return _from_blocks(d_bc), _from_blocks(d_norms), biases[0], biases[1]


def _from_blocks(x: Tensor) -> Tensor:
    return from_blocks(reshape(x, (*x.shape[:-1], BLOCKS, ANGLES)))
