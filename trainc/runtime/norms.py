"""Gradient norms from the partial sums that a device returns."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainc.core.state_table import ALIGNMENT, StateTable


@dataclass(frozen=True)
class GradientNorms:
    """Norms of the tensors of one gradient.

    Attributes:
        names: The tensors in order.
        values: float64 [tensors], the norm of each; not finite where an element is not.
    """

    names: tuple[str, ...]
    values: npt.NDArray[np.float64]

    @property
    def total(self) -> float:
        """The norm over all tensors."""
        return float(np.sqrt(np.sum(np.square(self.values))))

    @property
    def first_not_finite(self) -> str | None:
        """The first tensor with an element that is not finite."""
        bad = np.flatnonzero(~np.isfinite(self.values))
        return self.names[bad[0]] if bad.size else None


def combine(
    table: StateTable, block_max: npt.NDArray[np.float32], block_sumsq: npt.NDArray[np.float32]
) -> GradientNorms:
    """Work out each tensor's norm.

    A block of 64 elements g comes as max |g| and the sum of (g / max |g|)^2 (0 for a block of zeros), which neither
    overflows nor vanishes for any finite g; in float64 their product does not either. Padding counts as zeros.

    Args:
        table: Layout of the gradient.
        block_max: float32 [table.size / 64].
        block_sumsq: float32 [table.size / 64].
    """
    with np.errstate(invalid="ignore"):
        squares = np.square(block_max.astype(np.float64)) * block_sumsq
        starts = [tensor.offset // ALIGNMENT for tensor in table.tensors]
        return GradientNorms(table.names, np.sqrt(np.add.reduceat(squares, starts)))
