"""The state between chunks: contributions of chunks, each decayed by the chunks it passes.

Boundary c lies before chunk c. With total_m = cs at the end of chunk m, what enters the state at boundary s is worth
exp(sum of total_m, s <= m < c) of itself at boundary c: a small lower triangular matrix E, and S = E X.
"""

from trainc.ir.primitives import map_, matmul, reduce_sum
from trainc.ir.scalar import exp, index, select
from trainc.ir.tensor import Tensor


def boundary_decay(total_CY: Tensor, *, targets: int, sources: int, first_source: int) -> Tensor:
    """Return E (Y, targets, sources): decay from boundary first_source + d to boundary c, 0 where that lies before.

    The exponents are summed term by term, never as differences of long sums.
    """
    passed = map_(
        "my->ykdm",
        lambda total: select((index(3) >= index(2) + first_source) & (index(3) < index(1)), total, 0.0),
        total_CY,
        sizes={"k": targets, "d": sources},
    )
    exponent = reduce_sum("ykdm->ykd", passed)
    return map_("ykd->ykd", lambda e: select(index(2) + first_source <= index(1), exp(e), 0.0), exponent)


def carry(decay_YKD: Tensor, x_DYM: Tensor) -> Tensor:
    """Return E X (K, Y, M): the state at every target boundary."""
    return matmul("ykd,dym->kym", decay_YKD, x_DYM)


def carry_back(decay_YKD: Tensor, d_KYM: Tensor) -> Tensor:
    """Return E^T dS (D, Y, M): the gradient of every contribution."""
    return matmul("ykd,kym->dym", decay_YKD, d_KYM)
