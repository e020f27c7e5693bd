"""Norms of gradients, exact enough in float64 and free of overflow and underflow."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from trainc.core.errors import NotFiniteError
from trainc.core.modes import DEFAULT_MODE
from trainc.frontends.arrays import Float32
from trainc.frontends.optimizers.kernels import norms_kernel
from trainc.runtime.buffers import IMPORT_ALIGNMENT_BYTES, aligned_zeros
from trainc.runtime.program import Program

_BLOCK = 64
BATCH_ROWS = 1 << 14
"""Blocks that one call of the kernel takes at most."""


def global_norm(names: Sequence[str], arrays: Sequence[Float32], numeric_mode: str = DEFAULT_MODE) -> float:
    """Returns the norm of the norms of gradients.

    Raises:
        NotFiniteError: A gradient is not finite; the message names the first.
    """
    norms = tensor_norms(arrays, numeric_mode)
    bad = np.flatnonzero(~np.isfinite(norms))
    if bad.size:
        raise NotFiniteError(
            f"{names[bad[0]]} is not finite, so the gradients have no norm; nothing was changed; a lower learning rate "
            "or a look at the loss may help"
        )
    return float(np.sqrt(np.sum(np.square(norms))))


def tensor_norms(arrays: Sequence[Float32], numeric_mode: str = DEFAULT_MODE) -> npt.NDArray[np.float64]:
    """Returns the norm of each array; not finite where an element is not.

    Compiled code may add the rows of a call in different orders, so what goes into a call depends on the arrays' sizes
    alone, never on where they lie in memory: the same values have the same bits.

    Args:
        arrays: C-contiguous float32 arrays with at least one element each.
        numeric_mode: The mode to compile in.
    """
    if not arrays:
        return np.zeros(0)
    rows = [-(-array.size // _BLOCK) for array in arrays]
    batch = _Batch(norms_kernel(numeric_mode), sum(rows))
    for array, count in zip(arrays, rows, strict=True):
        flat = array.reshape(-1)
        if count <= batch.rows:
            batch.add(flat)
            continue
        batch.flush()
        size = batch.rows * _BLOCK
        for start in range(0, array.size, size):
            piece = flat[start : start + size]
            if piece.ctypes.data % IMPORT_ALIGNMENT_BYTES == 0 and piece.size % _BLOCK == 0:
                batch.measure(piece.reshape(-1, _BLOCK))
            else:
                batch.add(piece)
                batch.flush()
    batch.flush()
    ends = np.cumsum(rows)
    return np.sqrt([np.sum(batch.squares[end - count : end]) for end, count in zip(ends, rows, strict=True)])


class _Batch:
    """Gradients, each padded with zeros to whole blocks, that are measured in one call.

    Args:
        kernel: The kernel of the partial sums.
        total: Blocks of all gradients.

    Attributes:
        rows: Blocks that fit.
        squares: float64 [total], the sum of squares of each block, in the order they came.
    """

    def __init__(self, kernel: Program, total: int) -> None:
        self.rows = min(total, BATCH_ROWS)
        self.squares = np.empty(total)
        self._kernel = kernel
        self._blocks: Float32 = aligned_zeros((self.rows, _BLOCK), np.float32)
        self._used = self._measured = 0

    def add(self, piece: Float32) -> None:
        """Take a piece of at most `rows` blocks."""
        count = -(-piece.size // _BLOCK)
        if self._used + count > self.rows:
            self.flush()
        target = self._blocks[self._used : self._used + count].reshape(-1)
        target[: piece.size] = piece
        target[piece.size :] = 0.0
        self._used += count

    def flush(self) -> None:
        """Measure what was taken."""
        if self._used:
            self.measure(self._blocks[: self._used])
            self._used = 0

    def measure(self, blocks: Float32) -> None:
        """Measure blocks [count, 64] that start on a boundary of 64 bytes."""
        parts = self._kernel.call("norms", {"g": blocks})
        end = self._measured + len(blocks)
        with np.errstate(invalid="ignore"):
            self.squares[self._measured : end] = np.square(parts["block_max"].astype(np.float64)) * parts["block_sumsq"]
        self._measured = end
