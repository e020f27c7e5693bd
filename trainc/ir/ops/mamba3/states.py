"""The state between chunks: contributions of chunks, each decayed by the chunks it passes.

Boundary c lies before chunk c. With total_m = cs at the end of chunk m, what enters the state at boundary s is worth
exp(sum of total_m, s <= m < c) of itself at boundary c: a small lower triangular matrix E, and S = E X, where X holds
U_c = sum of k_i vt_i^T of the chunk before each boundary, and the state given at boundary 0, if one is.
"""

from dataclasses import dataclass

from trainc.ir.ops.mamba3.sizes import HEAD, STATE, Sizes
from trainc.ir.primitives import barrier, concat, elementwise, map_, matmul, pad_axis, reduce_sum, reshape, slice_axis
from trainc.ir.scalar import exp, index, select
from trainc.ir.tensor import Tensor


@dataclass(frozen=True)
class Between:
    """States at the boundaries.

    Attributes:
        decay: (Y, K, K), E from source to target boundaries: sources 1..C and targets 0..C-1 from the zero state,
            both 0..C from a given one.
        states: (K, Y, N*P), S.
    """

    decay: Tensor
    states: Tensor

    def entering(self, sizes: Sizes) -> Tensor:
        """Return the state that each tile starts from, (X, N, P)."""
        return reshape(slice_axis(self.states, 0, 0, sizes.chunks), (sizes.tiles, STATE, HEAD))

    def last(self, sizes: Sizes) -> Tensor:
        """Return the state after the last chunk, (Y, N, P); there is one if a state was given."""
        return reshape(slice_axis(self.states, 0, sizes.chunks, 1), (sizes.pairs, STATE, HEAD))


def between_chunks(k: Tensor, decayed_v: Tensor, cs_last: Tensor, sizes: Sizes, start: Tensor | None) -> Between | None:
    """Compute the states.

    Args:
        k: (X, Q, N).
        decayed_v: (X, Q, P), vt.
        cs_last: (X,).
        sizes: Of the mixer.
        start: (Y, N, P) before the first chunk; None means zero.

    Returns:
        The states, or None for a single chunk from the zero state, which needs none.
    """
    total = reshape(cs_last, (sizes.chunks, sizes.pairs))
    if start is not None:
        given = reshape(start, (1, sizes.pairs, STATE * HEAD))
        contributed = concat([given, _contributed(k, decayed_v, sizes)], axis=0)
        decay = boundary_decay(total, boundaries=sizes.chunks + 1, first_source=0)
        return Between(decay, barrier(matmul("ykd,dym->kym", decay, contributed)))
    if sizes.chunks == 1:
        return None
    # Nothing reads the state after the last chunk, so that chunk contributes to none.
    leading = sizes.tiles - sizes.pairs
    contributed = _contributed(slice_axis(k, 0, 0, leading), slice_axis(decayed_v, 0, 0, leading), sizes)
    decay = boundary_decay(total, boundaries=sizes.chunks, first_source=1)
    before_last = slice_axis(decay, 2, 0, sizes.chunks - 1)
    return Between(decay, barrier(matmul("ykd,dym->kym", before_last, contributed)))


def d_leaving(q: Tensor, decayed_dy: Tensor, between: Between, sizes: Sizes) -> Tensor:
    """Return the gradient of each tile's contribution U, (X, N, P): E^T R with R = sum of q_i (exp(cs_i) dy_i)^T.

    The first chunk starts from the zero state, so its R is not needed.
    """
    rest = sizes.tiles - sizes.pairs
    d_entering = _contributed(slice_axis(q, 0, sizes.pairs, rest), slice_axis(decayed_dy, 0, sizes.pairs, rest), sizes)
    after_first = slice_axis(between.decay, 1, 1, sizes.chunks - 1)
    d_u = matmul("ykd,kym->dym", after_first, d_entering)
    return barrier(reshape(d_u, (sizes.tiles, STATE, HEAD)))


def later_decay(d_state: Tensor, between: Between, sizes: Sizes) -> Tensor:
    """Return the sum of dcs over all later chunks, for each tile (X,): <dS, S> of the state that leaves its chunk.

    Decaying that state by a little more is decaying everything later. The sum itself would carry rounding errors of
    the whole sequence to its first rows.
    """
    leading, flat = sizes.tiles - sizes.pairs, (sizes.tiles, STATE, HEAD)
    leaving = slice_axis(reshape(between.states, flat), 0, sizes.pairs, leading)
    products = elementwise(lambda s, d: s * d, leaving, slice_axis(d_state, 0, 0, leading))
    # In two steps: one running sum of 8192 terms would lose more digits than its result can spare.
    dots = reduce_sum("xn->x", barrier(reduce_sum("xnp->xn", products)))
    return pad_axis(dots, 0, 0, sizes.pairs)


def _contributed(a: Tensor, b: Tensor, sizes: Sizes) -> Tensor:
    """Return sum of a_i b_i^T of every tile, as (chunks, Y, N*P)."""
    product = matmul("xin,xip->xnp", a, b)
    return reshape(product, (product.shape[0] // sizes.pairs, sizes.pairs, STATE * HEAD))


def boundary_decay(total_CY: Tensor, *, boundaries: int, first_source: int) -> Tensor:
    """Return E (Y, K, K): decay from boundary first_source + d to boundary k, 0 where that lies before.

    The exponents are summed term by term, never as differences of long sums.
    """
    passed = map_(
        "my->ykdm",
        lambda total: select((index(3) >= index(2) + first_source) & (index(3) < index(1)), total, 0.0),
        total_CY,
        sizes={"k": boundaries, "d": boundaries},
    )
    exponent = reduce_sum("ykdm->ykd", passed)
    return map_("ykd->ykd", lambda e: select(index(2) + first_source <= index(1), exp(e), 0.0), exponent)
