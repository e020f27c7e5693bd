"""The mixer in chunks (spec section 2.1): quadratic inside a chunk, a state between chunks.

    G = q k^T,   W_ij = exp(cs_i - cs_j) scale_j for j < i,   W_ii = gamma_i,   P = G o W
    vt_i = exp(cs_last - cs_i) scale_i v_i,   U = sum of k_i vt_i^T,   S_c = sum of earlier U, decayed
    y_i = (P v)_i + exp(cs_i) q_i S + D v_i,   o = y o silu(z)

The diagonal of W makes the separate term of a token's own key unnecessary: a rotation does not change q.k of one row.
States are kept transposed, (N, P), so that every product reads its operands in memory order.
"""

from dataclasses import dataclass

from trainc.ir.ops.mamba3.channels import weight_to_blocks
from trainc.ir.ops.mamba3.norms import norm
from trainc.ir.ops.mamba3.parts import Parts
from trainc.ir.ops.mamba3.rotation import Rotation, rotate, rotation
from trainc.ir.ops.mamba3.sizes import ANGLES, BLOCKS, HEAD, STATE, Sizes
from trainc.ir.ops.mamba3.states import Between, between_chunks
from trainc.ir.ops.mamba3.tokens import Tokens
from trainc.ir.primitives import barrier, concat, map_, matmul, reshape, slice_axis
from trainc.ir.scalar import Scalar, equal, exp, index, minimum, select, sigmoid
from trainc.ir.tensor import Tensor


@dataclass(frozen=True)
class Weights:
    """The mixer's parameters.

    Attributes:
        dt_bias: (H).
        norm: (S, N) in block order, B_norm and C_norm.
        b_bias: (H, J, R) in block order.
        c_bias: (H, J, R) in block order.
        d: (H).
    """

    dt_bias: Tensor
    norm: Tensor
    b_bias: Tensor
    c_bias: Tensor
    d: Tensor


@dataclass(frozen=True)
class State:
    """The state before the first row.

    Attributes:
        theta: (B, H, R).
        s: (Y, N, P) with N in block order, the state S_0 (not h: it holds the last token's share in the next one).
    """

    theta: Tensor
    s: Tensor


@dataclass(frozen=True)
class Forward:
    """What the forward pass computes, as far as the backward pass or the carried state needs it.

    Attributes:
        o: (B, L, I).
        q: (X, Q, N), rotated, in block order.
        k: (X, Q, N), rotated, in block order.
        v: (X, Q, P).
        decayed_v: (X, Q, P), vt.
        weighted: (X, Q, Q), P.
        y: (X, Q, P), before the gate.
        between: States between chunks; None for one chunk from the zero state.
        normed: (B*C*Q, S, N), B and C after their norms, before the biases.
        bc_inverse: (B*C*Q, S), the norms' inverse root mean squares.
        turn: Angles.
    """

    o: Tensor
    q: Tensor
    k: Tensor
    v: Tensor
    decayed_v: Tensor
    weighted: Tensor
    y: Tensor
    between: Between | None
    normed: Tensor
    bc_inverse: Tensor
    turn: Rotation


def weights(dt_bias: Tensor, b_norm: Tensor, c_norm: Tensor, b_bias: Tensor, c_bias: Tensor, d: Tensor) -> Weights:
    """Bring the parameters into block order."""
    norms = [reshape(weight_to_blocks(reshape(w, (1, STATE))), (1, STATE)) for w in (b_norm, c_norm)]
    return Weights(dt_bias, concat(norms, axis=0), weight_to_blocks(b_bias), weight_to_blocks(c_bias), d)


def forward(part: Parts, weight: Weights, token: Tokens, sizes: Sizes, state: State | None = None) -> Forward:
    """Run the mixer.

    Args:
        part: Pieces of u.
        weight: Parameters.
        token: Per-token quantities.
        sizes: Of the mixer.
        state: Before the first row; None means zero.
    """
    turn = rotation(part.angle, token.dt, sizes, state.theta if state else None)
    normed, inverse = norm(part.bc, weight.norm)
    k, q = (
        barrier(reshape(rotate(half(normed, number, sizes), bias, turn), (sizes.tiles, sizes.chunk, STATE)))
        for number, bias in enumerate((weight.b_bias, weight.c_bias))
    )
    v = barrier(reshape(map_("bcihp->cbhip", lambda e: e, part.x), (sizes.tiles, sizes.chunk, HEAD)))
    weighted = map_(
        "xij,xi,xj,xj,xj->xij",
        lambda score, *row: score * pair_weight(*row),
        matmul("xin,xnj->xij", q, transposed(k)),
        token.cs,
        token.cs,
        token.scale,
        token.gamma,
    )
    decayed_v = map_("xip,xi,xi,x->xip", _decayed, v, token.cs, token.scale, token.cs_last)
    between = between_chunks(k, decayed_v, token.cs_last, sizes, state.s if state else None)
    y = barrier(_outputs(matmul("xij,xjp->xip", weighted, v), q, v, between, token, weight, sizes))
    y_tile = reshape(y, (*sizes.tile_shape, HEAD))
    o = map_("cbhip,bcihp->bcihp", lambda y, z: y * (z * sigmoid(z)), y_tile, part.z)
    o = slice_axis(reshape(o, (sizes.batch, sizes.padded, sizes.inner)), 1, 0, sizes.length)
    return Forward(o, q, k, v, decayed_v, weighted, y, between, normed, inverse, turn)


def pair_weight(cs_i: Scalar, cs_j: Scalar, scale: Scalar, gamma: Scalar) -> Scalar:
    """Return W_ij of a map over (tile, i, j); the exponent is at most 0, masked pairs included."""
    between = exp(minimum(cs_i - cs_j, 0.0)) * scale
    return select(index(2) < index(1), between, select(equal(index(1), index(2)), gamma, 0.0))


def transposed(x: Tensor) -> Tensor:
    """Copy (X, A, B) to (X, B, A); the barriers keep the copy from being folded into a product."""
    return barrier(map_("xab->xba", lambda e: e, barrier(x)))


def by_tile(x_H: Tensor, sizes: Sizes) -> Tensor:
    """Repeat a per-head vector for every tile (X)."""
    spread = map_("h->cbh", lambda e: e, x_H, sizes={"c": sizes.chunks, "b": sizes.batch})
    return reshape(spread, (sizes.tiles,))


def half(normed_TSN: Tensor, number: int, sizes: Sizes) -> Tensor:
    """Return the normed B (number 0) or C (number 1) as (B, C, Q, J, R)."""
    return reshape(slice_axis(normed_TSN, 1, number, 1), (*sizes.token_shape, BLOCKS, ANGLES))


def _decayed(v: Scalar, cs: Scalar, scale: Scalar, last: Scalar) -> Scalar:
    return v * (exp(minimum(last - cs, 0.0)) * scale)


def _outputs(
    inside: Tensor, q: Tensor, v: Tensor, between: Between | None, token: Tokens, weight: Weights, sizes: Sizes
) -> Tensor:
    """Return y (X, Q, P): the part from inside the chunk, the part from the state, and the direct term."""
    direct = by_tile(weight.d, sizes)
    if between is None:
        return map_("xip,xip,x->xip", lambda inside, v, d: inside + d * v, inside, v, direct)
    return map_(
        "xip,xip,xi,xip,x->xip",
        lambda inside, before, cs, v, d: inside + exp(cs) * before + d * v,
        inside,
        matmul("xin,xnp->xip", q, between.entering(sizes)),
        token.cs,
        v,
        direct,
    )
