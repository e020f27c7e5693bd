"""The scalars of one AdamW step, worked out once on the host in float32 and handed to the compiled update.

With a gradient g scaled by `clip`, the update of a parameter p and its moments m and v is (spec section 8):

    m = c1 * g + b1 * m
    v = c2 * g * g + b2 * v
    p = p * decay - step * (m / (sqrt(v) / rb + eps))
"""

import dataclasses
from typing import Any

import numpy as np

from trainc.core import checks
from trainc.core.errors import ConfigError, UsageError

COEFFICIENT_NAMES: tuple[str, ...] = ("clip", "decay", "b1", "c1", "b2", "c2", "rb", "eps", "step")

_ONE = np.float32(1.0)
_CLIP_EPS = np.float32(1e-6)  # keeps the clip factor finite for a norm of zero


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdamWSettings:
    """Settings of AdamW and of gradient clipping; every number is rounded to float32.

    Args:
        lr: Learning rate where no schedule sets it; at least 0.
        betas: Decay rates of the two moments, each in [0, 1).
        eps: Added to the denominator; at least 0.
        weight_decay: Decoupled weight decay; at least 0.
        max_norm: Largest global gradient norm, above 0; None does not clip.

    Raises:
        ConfigError: A value is impossible; the message starts with the field's name.
    """

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01
    max_norm: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.betas, str) or not hasattr(self.betas, "__len__") or len(self.betas) != 2:
            raise ConfigError(f"betas must be two numbers in [0, 1), got {self.betas!r}")
        values: dict[str, Any] = {
            "lr": checks.float32_at_least_0("lr", self.lr),
            "betas": tuple(checks.float32_below_1(f"betas[{i}]", beta) for i, beta in enumerate(self.betas)),
            "eps": checks.float32_at_least_0("eps", self.eps),
            "weight_decay": checks.float32_at_least_0("weight_decay", self.weight_decay),
        }
        if self.max_norm is not None:
            values["max_norm"] = checks.float32_above_0("max_norm", self.max_norm)
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def to_dict(self) -> dict[str, Any]:
        """Returns the settings as a plain dict, ready for JSON; `betas` is a list."""
        return {**dataclasses.asdict(self), "betas": list(self.betas)}


def coefficients(settings: AdamWSettings, lr: float, step: int, clip: float = 1.0) -> dict[str, np.float32]:
    """Returns the scalars of one update.

    Args:
        settings: The optimizer's settings; `settings.lr` is not read.
        lr: Learning rate of this step.
        step: Number of this step, counted from one.
        clip: Factor every gradient is multiplied by; see `clip_factor`.

    Returns:
        The float32 scalars named in `COEFFICIENT_NAMES`, in that order.

    Raises:
        UsageError: `step` is below one.
    """
    if step < 1:
        raise UsageError(f"step counts from one, got {step}")
    rate, decay = np.float32(lr), np.float32(settings.weight_decay)
    b1, b2 = (np.float32(beta) for beta in settings.betas)
    return {
        "clip": np.float32(clip),
        "decay": _ONE - rate * decay,
        "b1": b1,
        "c1": _ONE - b1,
        "b2": b2,
        "c2": _ONE - b2,
        "rb": np.sqrt(_ONE - power(b2, step)),
        "eps": np.float32(settings.eps),
        "step": rate / (_ONE - power(b1, step)),
    }


def clip_factor(total_norm: float, max_norm: float | None) -> np.float32:
    """Returns what gradients of global norm `total_norm` are multiplied by: at most 1, and 1 without a `max_norm`."""
    if max_norm is None:
        return _ONE
    return min(_ONE, np.float32(max_norm) / (np.float32(total_norm) + _CLIP_EPS))


def power(base: np.float32, exponent: int) -> np.float32:
    """Returns `base ** exponent` in float32, by squaring from the exponent's lowest bit up."""
    result = _ONE
    while exponent:
        if exponent & 1:
            result = result * base
        base = base * base
        exponent >>= 1
    return result
