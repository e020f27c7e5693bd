"""Running sums along the sequence, in two levels: a triangular product within chunks, and one over chunk totals."""

import numpy as np

from trainc.ir.primitives import barrier, constant, matmul, reshape, slice_axis
from trainc.ir.tensor import Tensor


def prefix_ones(size: int, dtype: str) -> Tensor:
    """Return ones[i, j] = 1 for j <= i."""
    return constant(np.tril(np.ones((size, size))), dtype)


def suffix_ones(size: int, dtype: str) -> Tensor:
    """Return ones[i, j] = 1 for j >= i."""
    return constant(np.triu(np.ones((size, size))), dtype)


def earlier(total_CM: Tensor) -> Tensor:
    """Return the sum of the totals of all earlier chunks, for each chunk."""
    before = np.tril(np.ones((total_CM.shape[0], total_CM.shape[0])), -1)
    return barrier(matmul("cd,dm->cm", constant(before, total_CM.dtype), total_CM))


def later(total_CM: Tensor) -> Tensor:
    """Return the sum of the totals of all later chunks, for each chunk."""
    after = np.triu(np.ones((total_CM.shape[0], total_CM.shape[0])), 1)
    return barrier(matmul("cd,dm->cm", constant(after, total_CM.dtype), total_CM))


def row(x: Tensor, axis: int, number: int) -> Tensor:
    """Return one position of an axis, without that axis."""
    return reshape(slice_axis(x, axis, number, 1), x.shape[:axis] + x.shape[axis + 1 :])
