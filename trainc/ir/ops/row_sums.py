"""Sums over the rows of a matrix, in two steps.

The sum of each group of rows runs along contiguous rows and stays in the caches, and no running sum gets so long that
its rounding error grows with the batch (docs/performance.md has the figures).
"""

from trainc.ir.primitives import barrier, reduce_sum, reshape
from trainc.ir.tensor import Tensor

_GROUPS = 32
_FEW_ROWS = 256


def sum_rows(x_TD: Tensor) -> Tensor:
    """Return the sum over the rows of (T, D), shape (D,)."""
    rows, width = x_TD.shape
    if rows < _FEW_ROWS or rows % _GROUPS:
        return reduce_sum("td->d", x_TD)
    groups = reduce_sum("gtd->gd", reshape(x_TD, (_GROUPS, rows // _GROUPS, width)))
    return reduce_sum("gd->d", barrier(groups))
