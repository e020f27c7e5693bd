"""Choosing the next token from logits, on the host and reproducibly."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainc.core import philox
from trainc.core.errors import NumericsError, UsageError

Logits = npt.NDArray[np.float32]

_DRAWS = 256
"""Draws of a stream that are computed together."""


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How the next token is chosen.

    Attributes:
        temperature: Divides the logits; 0 takes the largest logit, the lowest token of equal ones.
        top_k: Choose among this many largest logits only; None among all.
        top_p: Choose among the fewest most likely tokens whose probabilities add up to at least this, in (0, 1].
        seed: Of the draws, in [0, 2**64).
        stream: Another stream gives other text under the same seed; in [0, 2**32).
        stop: Text ends before the first of these byte strings.

    Raises:
        UsageError: A value is out of range; the message names it.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int = 0
    stream: int = 0
    stop: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature < np.inf:
            raise UsageError(f"temperature must be finite and at least 0, got {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise UsageError(f"top_k must be at least 1, got {self.top_k}")
        if not 0.0 < self.top_p <= 1.0:
            raise UsageError(f"top_p must be in (0, 1], got {self.top_p}")
        for name, value, most in (("seed", self.seed, philox.MAX_SEED), ("stream", self.stream, philox.MAX_STREAM)):
            if not 0 <= value <= most:
                raise UsageError(f"{name} must be in 0..{most}, got {value}")
        if any(not stop for stop in self.stop):
            raise UsageError("a stop string must not be empty")


def next_token(logits: Logits, options: SamplingOptions, stream: int, index: int) -> int:
    """Choose one token.

    Args:
        logits: float32 [vocab].
        options: How to choose; `options.stream` is not read.
        stream: Stream of the draws, in [0, 2**32).
        index: Which draw of the stream to use: the number of tokens drawn before.

    Raises:
        NumericsError: A logit is nan, or none is above -inf.
    """
    if np.isnan(logits).any() or not logits.max() > -np.inf:
        raise NumericsError("the logits hold nan or only -inf; the weights are damaged")
    if options.temperature == 0.0:
        return int(np.argmax(logits))
    order = np.argsort(-logits, kind="stable")[: options.top_k]
    values = logits[order].astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # a tiny temperature, and logits of inf
        weights = np.exp(np.where(values == values[0], 0.0, values - values[0]) / options.temperature)
    sums = np.cumsum(weights / weights.sum())
    kept = int(np.searchsorted(sums, options.top_p)) + 1 if options.top_p < 1.0 else len(order)
    draw = _draws(options.seed, stream, index // _DRAWS)[index % _DRAWS]
    chosen = int(np.searchsorted(sums[:kept], draw * sums[:kept][-1], side="right"))
    return int(order[min(chosen, kept - 1, len(order) - 1)])


@functools.lru_cache(maxsize=256)  # one for each of the rows that are decoded side by side
def _draws(seed: int, stream: int, block: int) -> list[float]:
    """Return _DRAWS uniform draws in [0, 1): one by one they would take as long as half a decode step."""
    drawn: list[float] = philox.uniform(seed, stream, _DRAWS, offset=block * _DRAWS).tolist()
    return drawn


def find_stop(text: bytes, stop: Sequence[bytes]) -> int | None:
    """Where the first stop string in a text begins, or None."""
    places = [place for place in (text.find(one) for one in stop) if place >= 0]
    return min(places, default=None)
