"""The scalars of one step of Adam with coupled weight decay, worked out once on the host in float32.

With a gradient g scaled by `clip`, the update of a parameter p and its moments m and v is (spec section 8):

    g = decay * p + g
    m = c1 * g + b1 * m
    v = c2 * g * g + b2 * v
    p = p - step * (m / (sqrt(v) / rb + eps))
"""

import numpy as np

from trainc.core import adamw
from trainc.core.adamw import COEFFICIENT_NAMES, AdamWSettings

__all__ = ["COEFFICIENT_NAMES", "coefficients"]


def coefficients(settings: AdamWSettings, lr: float, step: int, clip: float = 1.0) -> dict[str, np.float32]:
    """Returns the scalars of one update.

    Args:
        settings: The optimizer's settings; `settings.lr` is not read.
        lr: Learning rate of this step.
        step: Number of this step, counted from one.
        clip: Factor every gradient is multiplied by.

    Returns:
        The float32 scalars named in `COEFFICIENT_NAMES`, in that order; `decay` is the weight decay itself.

    Raises:
        UsageError: `step` is below one.
    """
    return {**adamw.coefficients(settings, lr, step, clip), "decay": np.float32(settings.weight_decay)}
