"""Learning-rate schedules whose every value is the float32 nearest the exact rate.

Rates are worked out as fractions, the cosine to 80 decimal digits, and rounded once at the end: a schedule has
the same bits on every machine (spec section 6).
"""

import decimal
import functools
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from trainc.core import checks
from trainc.core.errors import ArgumentTypeError, ConfigError, UnsupportedError, UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DIGITS = 80
_PLOTTED_STEPS = 400  # an exact rate takes a fraction of a millisecond, and no screen shows more


class Schedule:
    """A linear warmup followed by the decay that a subclass defines.

    Args:
        peak_lr: Rate at the end of the warmup; finite, at least 0, rounded to float32.
        warmup_steps: Steps of linear warmup; the first has the rate peak_lr / warmup_steps.
        total_steps: Step at which the decay reaches min_lr, at least max(1, warmup_steps); None never decays.
        min_lr: Rate from total_steps on; finite, at least 0, rounded to float32.

    Raises:
        ConfigError: A value is impossible; the message starts with its name.
    """

    kind: ClassVar[str]

    def __init__(
        self, peak_lr: float, warmup_steps: int = 0, total_steps: int | None = None, min_lr: float = 0.0
    ) -> None:
        self.peak_lr = checks.float32_at_least_0("peak_lr", peak_lr)
        self.min_lr = checks.float32_at_least_0("min_lr", min_lr)
        self.warmup_steps = checks.integer("warmup_steps", warmup_steps, 0)
        self.total_steps: int | None = None
        if total_steps is not None:
            self.total_steps = checks.integer("total_steps", total_steps, max(1, self.warmup_steps))

    def lr_at(self, t: int) -> float:
        """Returns the rate of optimizer step `t`, counted from one: a float32 value as a Python float.

        Raises:
            UsageError: `t` is not an integer of at least 1.
        """
        return float(nearest_float32(self._exact(_one_based(t))))

    def lr_values(self, n: int) -> npt.NDArray[np.float32]:
        """Returns the rates of steps 1 to `n` as a float32 array of shape (n,).

        Raises:
            UsageError: `n` is not an integer of at least 1.
        """
        return np.array([self.lr_at(t) for t in range(1, _one_based(n, "n") + 1)], np.float32)

    def bits_at(self, t: int) -> int:
        """Returns the IEEE 754 bits of the rate of step `t`.

        Raises:
            UsageError: `t` is not an integer of at least 1.
        """
        return int(np.float32(self.lr_at(t)).view(np.uint32))

    def plot(self, steps: int | None = None, out: str | Path | None = None) -> "Figure":
        """Draws the rate over the steps; needs the `plot` extra.

        Args:
            steps: Last step to draw, at least 1; None is a little beyond `total_steps`, or beyond the warmup where
                nothing decays.
            out: A picture to write, in the format of its suffix; None writes none.

        Returns:
            The matplotlib figure, which a notebook shows.

        Raises:
            UsageError: `steps` is not an integer of at least 1.
            UnsupportedError: matplotlib is not installed.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise UnsupportedError(
                "a plot of a schedule needs matplotlib, which is not installed; install trainc with the extra: "
                "trainc[plot]"
            ) from error
        end = self.total_steps or 2 * self.warmup_steps
        last = max(10, end + end // 10) if steps is None else _one_based(steps, "steps")
        drawn = np.unique(np.linspace(1, last, min(last, _PLOTTED_STEPS)).round().astype(int))
        turns = [step for step in (self.warmup_steps, self.total_steps) if step and step <= last]
        drawn = np.union1d(drawn, np.array(turns, int))
        figure = Figure(figsize=(7.0, 4.0), layout="constrained")
        axes = figure.subplots()
        axes.plot(drawn, [self.lr_at(int(step)) for step in drawn])
        axes.set_xlabel("step")
        axes.set_ylabel("learning rate")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        if out is not None:
            figure.savefig(out, dpi=120)
        return figure

    def config(self) -> dict[str, Any]:
        """Returns the settings as a plain dict, which `from_config` turns back into a schedule."""
        return {
            "kind": self.kind,
            "peak_lr": self.peak_lr,
            "warmup_steps": self.warmup_steps,
            "total_steps": self.total_steps,
            "min_lr": self.min_lr,
        }

    @staticmethod
    def from_config(config: Mapping[str, Any]) -> "Schedule":
        """Returns the schedule that a dict made by `config` describes; the same as `schedule_from_config`.

        Args:
            config: `kind` and `peak_lr`, and as far as they are not the default warmup_steps, total_steps, min_lr.

        Raises:
            ConfigError: A key is unknown or missing, or a value is impossible.
        """
        return schedule_from_config(config)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(peak_lr={self.peak_lr!r}, warmup_steps={self.warmup_steps}, "
            f"total_steps={self.total_steps}, min_lr={self.min_lr!r})"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schedule) and self.config() == other.config()

    def __hash__(self) -> int:
        return hash(tuple(self.config().values()))

    def _exact(self, t: int) -> Fraction:
        peak, low = Fraction(self.peak_lr), Fraction(self.min_lr)
        if t <= self.warmup_steps:
            return peak * t / self.warmup_steps
        if self.total_steps is None:
            return peak
        if t >= self.total_steps:
            return low
        progress = Fraction(t - self.warmup_steps, self.total_steps - self.warmup_steps)
        return low + (peak - low) * self._remaining(progress)

    def _remaining(self, progress: Fraction) -> Fraction:
        """Returns the share of the way from min_lr to peak_lr that is left at `progress` in (0, 1)."""
        raise NotImplementedError


class ConstantLR(Schedule):
    """Linear warmup, then `peak_lr` for ever.

    Args:
        peak_lr: Rate after the warmup; finite, at least 0, rounded to float32.
        warmup_steps: Steps of linear warmup.
        total_steps: Ignored.
        min_lr: Ignored.

    Raises:
        ConfigError: A value is impossible; the message starts with its name.
    """

    kind = "constant"

    def __init__(
        self, peak_lr: float, warmup_steps: int = 0, total_steps: int | None = None, min_lr: float = 0.0
    ) -> None:
        super().__init__(peak_lr, warmup_steps)


class WarmupLinearLR(Schedule):
    """Linear warmup, then a straight line down to `min_lr`.

    Args:
        peak_lr: Rate at the end of the warmup; finite, at least 0, rounded to float32.
        warmup_steps: Steps of linear warmup; the first has the rate peak_lr / warmup_steps.
        total_steps: Step at which the decay reaches min_lr, at least max(1, warmup_steps); None never decays.
        min_lr: Rate from total_steps on; finite, at least 0, rounded to float32.

    Raises:
        ConfigError: A value is impossible; the message starts with its name.
    """

    kind = "linear"

    def _remaining(self, progress: Fraction) -> Fraction:
        return 1 - progress


class WarmupCosineLR(Schedule):
    """Linear warmup, then half a cosine wave down to `min_lr`.

    Args:
        peak_lr: Rate at the end of the warmup; finite, at least 0, rounded to float32.
        warmup_steps: Steps of linear warmup; the first has the rate peak_lr / warmup_steps.
        total_steps: Step at which the decay reaches min_lr, at least max(1, warmup_steps); None never decays.
        min_lr: Rate from total_steps on; finite, at least 0, rounded to float32.

    Raises:
        ConfigError: A value is impossible; the message starts with its name.
    """

    kind = "cosine"

    def _remaining(self, progress: Fraction) -> Fraction:
        return (1 + cos_pi(progress)) / 2


_KINDS: dict[str, type[Schedule]] = {cls.kind: cls for cls in (ConstantLR, WarmupLinearLR, WarmupCosineLR)}
SCHEDULE_KINDS: tuple[str, ...] = tuple(_KINDS)


def schedule_from_config(config: Mapping[str, Any]) -> Schedule:
    """Returns the schedule that a dict made by `Schedule.config` describes.

    Args:
        config: `kind` and `peak_lr`, and as far as they are not the default warmup_steps, total_steps, min_lr.

    Raises:
        ConfigError: A key is unknown or missing, or a value is impossible.
        ArgumentTypeError: `config` is no mapping.
    """
    if not isinstance(config, Mapping):
        raise ArgumentTypeError(f"config must be a dict made by a schedule's config(), got {type(config).__name__}")
    settings = dict(config)
    known = ("kind", "peak_lr", "warmup_steps", "total_steps", "min_lr")
    for key in settings:
        if key not in known:
            raise ConfigError(f"{key} is not a field of a schedule; fields: {', '.join(known)}")
    for key in known[:2]:
        if key not in settings:
            raise ConfigError(f"{key} is missing; a schedule needs it")
    kind = settings.pop("kind")
    if not isinstance(kind, str) or kind not in SCHEDULE_KINDS:
        raise ConfigError(f"kind must be one of {', '.join(SCHEDULE_KINDS)}, got {kind!r}")
    return _KINDS[kind](**settings)


def nearest_float32(exact: Fraction) -> np.float32:
    """Returns the float32 nearest a fraction, ties to even; the fraction must lie within the float32 range."""
    guess = np.float32(float(exact))  # rounded twice: at most one step off
    candidates = (np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf)))
    finite = [c for c in candidates if np.isfinite(c)]
    return min(finite, key=lambda c: (abs(Fraction(float(c)) - exact), int(c.view(np.uint32)) & 1))


def cos_pi(p: Fraction) -> Fraction:
    """Returns cos(pi * p) for p in [0, 1]: exact where it is rational, else to about 80 digits."""
    if p > Fraction(1, 2):
        return -cos_pi(1 - p)
    rational = {Fraction(0): Fraction(1), Fraction(1, 3): Fraction(1, 2), Fraction(1, 2): Fraction(0)}
    if p in rational:
        return rational[p]
    with decimal.localcontext(prec=_DIGITS + 10):
        x = _pi() * p.numerator / p.denominator
        minus_square, term, total, k = -x * x, decimal.Decimal(1), decimal.Decimal(1), 0
        while abs(term) > decimal.Decimal(10) ** -(_DIGITS + 5):
            k += 2
            term = term * minus_square / (k * (k - 1))
            total += term
    return Fraction(total)


@functools.cache
def _pi() -> decimal.Decimal:
    """Returns pi to `_DIGITS` + 10 digits, by Machin's formula in integers."""
    digits = _DIGITS + 20

    def scaled_arctan_of_inverse(n: int) -> int:
        term: int = 10**digits // n
        total, k = term, 1
        while term:
            term //= -n * n
            k += 2
            total += term // k
        return total

    scaled = 4 * (4 * scaled_arctan_of_inverse(5) - scaled_arctan_of_inverse(239))
    with decimal.localcontext(prec=_DIGITS + 10):
        return decimal.Decimal(scaled).scaleb(-digits)


def _one_based(t: Any, name: str = "t, the optimizer step counted from one,") -> int:
    try:
        return checks.integer(name, t, 1)
    except ConfigError as error:
        raise UsageError(str(error)) from None
