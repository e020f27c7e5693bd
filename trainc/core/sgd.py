"""The scalars of one step of SGD, worked out once on the host in float32 and handed to the compiled update.

With a gradient g multiplied by `sign`, the update of a parameter p and its momentum buffer b is (spec section 8):

    g = decay * p + g
    b = g in the buffer's first step, keep * g + momentum * b later
    g = momentum * b + g with Nesterov momentum, b otherwise
    p = p - lr * g

Without momentum there is no buffer and the two lines in the middle fall away.
"""

import dataclasses

import numpy as np

from trainc.core import checks
from trainc.core.errors import ArgumentTypeError, ConfigError

PLAIN_COEFFICIENT_NAMES: tuple[str, ...] = ("sign", "decay", "lr")
MOMENTUM_COEFFICIENT_NAMES: tuple[str, ...] = ("sign", "decay", "first", "momentum", "keep", "nesterov", "lr")

_ONE = np.float32(1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SGDSettings:
    """Settings of SGD; every number is rounded to float32.

    Args:
        momentum: Momentum factor; at least 0.
        dampening: Share of the gradient kept out of the momentum buffer after the buffer's first step; at least 0.
        weight_decay: Coupled weight decay; at least 0.
        nesterov: Nesterov momentum; needs momentum above 0 and no dampening.

    Raises:
        ConfigError: A value is impossible; the message starts with the field's name.
        ArgumentTypeError: `nesterov` is no bool.
    """

    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        for name in ("momentum", "dampening", "weight_decay"):
            object.__setattr__(self, name, checks.float32_at_least_0(name, getattr(self, name)))
        if not isinstance(self.nesterov, bool):
            raise ArgumentTypeError(f"nesterov must be True or False, got {self.nesterov!r}")
        if self.nesterov and (self.momentum == 0.0 or self.dampening != 0.0):
            raise ConfigError(
                f"nesterov needs momentum above 0 and dampening 0, got momentum {self.momentum} and dampening "
                f"{self.dampening}"
            )


def coefficients(settings: SGDSettings, lr: float, *, sign: float, first: bool) -> dict[str, np.float32]:
    """Returns the scalars of one update.

    Args:
        settings: The optimizer's settings.
        lr: Learning rate of this step.
        sign: -1 turns every gradient round, 1 leaves it.
        first: Whether the momentum buffer has not been written yet.

    Returns:
        The float32 scalars named in `MOMENTUM_COEFFICIENT_NAMES` with momentum, else in `PLAIN_COEFFICIENT_NAMES`, in
        that order; a yes is 1, a no 0.
    """
    values = {
        "sign": np.float32(sign),
        "decay": np.float32(settings.weight_decay),
        "first": np.float32(first),
        "momentum": np.float32(settings.momentum),
        "keep": _ONE - np.float32(settings.dampening),
        "nesterov": np.float32(settings.nesterov),
        "lr": np.float32(lr),
    }
    names = MOMENTUM_COEFFICIENT_NAMES if settings.momentum else PLAIN_COEFFICIENT_NAMES
    return {name: values[name] for name in names}
