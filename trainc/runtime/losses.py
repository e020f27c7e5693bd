"""Adding up losses that compiled code returns token by token."""

from typing import Any

import numpy as np
import numpy.typing as npt


def total_loss(parts: npt.NDArray[Any]) -> float:
    """Return the sum of a loss's parts, in float64: a long float32 sum would round it to seven digits.

    Args:
        parts: float32 of any shape; `()` is the loss itself.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        return float(np.sum(parts, dtype=np.float64))
