"""Generator: reproducible initial weights and dropout masks, one Philox stream a draw."""

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainc.core import philox
from trainc.core.errors import DtypeError, TraincError, UsageError
from trainc.core.float32 import FloatArray
from trainc.core.modes import resolve_mode
from trainc.frontends import draws
from trainc.frontends.arrays import view

_STREAMS = philox.MAX_STREAM + 1
_MAX_OFFSET = 2**64 - 1
_KEY_FIELDS = ("seed", "stream", "p", "scale", "offset")

Shape = int | Sequence[int]


class StreamsExhaustedError(TraincError, RuntimeError):
    """A generator has handed out every one of its 2**32 streams."""


class Generator:
    """Seeded source of initial weights and dropout masks.

    A value depends on the seed, the stream and its index in the stream alone, and has the same bits on every
    machine and in every numeric mode. Each draw, whatever its size, takes the next stream.

    Args:
        seed: In [0, 2**64).
        numeric_mode: A numeric mode or None for the default; it is checked, and changes no value.

    Attributes:
        seed: The seed.
        counter: Number of streams taken so far, which is the next stream's id.
        numeric_mode: The mode in use.

    Raises:
        UsageError: `seed` is out of range or `numeric_mode` is unknown.
        UnsupportedError: `numeric_mode` is not available.
    """

    def __init__(self, seed: int, numeric_mode: str | None = None) -> None:
        self.seed = _in_range("seed", seed, philox.MAX_SEED)
        self.counter = 0
        self.numeric_mode = resolve_mode(numeric_mode)

    def __repr__(self) -> str:
        return f"Generator(seed={self.seed}, counter={self.counter})"

    def state_dict(self) -> dict[str, int]:
        """Returns the state: `seed` and `counter`."""
        return {"seed": self.seed, "counter": self.counter}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state made by `state_dict`.

        Args:
            state: `seed` and `counter`.

        Raises:
            UsageError: The keys are not `seed` and `counter`, or a value is out of range: the counter must fit
                32 bits, so the state of an exhausted generator cannot be loaded.
        """
        _require_fields("a generator state", state, ("seed", "counter"))
        seed = _in_range("seed", state["seed"], philox.MAX_SEED)
        self.counter = _in_range("counter", state["counter"], philox.MAX_STREAM)
        self.seed = seed

    def next_stream(self) -> int:
        """Takes the next stream and returns its id, for operations that draw several slices of one stream.

        Raises:
            StreamsExhaustedError: All 2**32 streams have been taken.
        """
        if self.counter >= _STREAMS:
            raise StreamsExhaustedError(
                f"the generator of seed {self.seed} has no stream left (counter {self.counter}); use another seed"
            )
        stream = self.counter
        self.counter += 1
        return stream

    def uniform(self, shape: Shape, low: float = 0.0, high: float = 1.0) -> FloatArray:
        """Draws values uniform in [low, high).

        Args:
            shape: Shape of the result; every dimension at least 1.
            low: Lower bound, rounded to float32.
            high: Upper bound, rounded to float32, not below `low`.

        Returns:
            float32 array of shape `shape`.

        Raises:
            UsageError: The shape or a bound is impossible.
            StreamsExhaustedError: No stream is left.
        """
        dims = _dimensions(shape)
        bottom, top = _finite("low", low), _finite("high", high)
        if top < bottom:
            raise UsageError(f"high must not be below low, got low {low!r} and high {high!r}")
        _finite("high - low", top - bottom)
        return draws.uniform(self.seed, self.next_stream(), math.prod(dims), bottom, top).reshape(dims)

    def normal(self, shape: Shape, mean: float = 0.0, std: float = 1.0) -> FloatArray:
        """Draws normal values by Box-Muller.

        Args:
            shape: Shape of the result; every dimension at least 1.
            mean: Mean, rounded to float32.
            std: Standard deviation, rounded to float32, at least 0.

        Returns:
            float32 array of shape `shape`.

        Raises:
            UsageError: The shape, `mean` or `std` is impossible.
            StreamsExhaustedError: No stream is left.
        """
        dims = _dimensions(shape)
        center, spread = _finite("mean", mean), _finite("std", std)
        if spread < 0:
            raise UsageError(f"std must be at least 0, got {std!r}")
        return philox.normal(self.seed, self.next_stream(), math.prod(dims), center, spread).reshape(dims)

    def kaiming_uniform(self, shape: Shape, fan_in: int, a: float | None = None) -> FloatArray:
        """Draws uniform values in [-b, b), b = sqrt(2 / (1 + a**2)) * sqrt(3 / fan_in).

        Args:
            shape: Shape of the result; every dimension at least 1.
            fan_in: Inputs of the layer, at least 1.
            a: Negative slope of the leaky ReLU that follows; None means sqrt(5), so that b = 1 / sqrt(fan_in).

        Returns:
            float32 array of shape `shape`.

        Raises:
            UsageError: An argument is impossible.
            StreamsExhaustedError: No stream is left.
        """
        slope = math.sqrt(5.0) if a is None else _finite("a", a)
        bound = math.sqrt(2.0 / (1.0 + slope * slope)) * math.sqrt(3.0 / _at_least_1("fan_in", fan_in))
        return self.uniform(shape, -bound, bound)

    def xavier_uniform(self, shape: Shape, fan_in: int, fan_out: int, gain: float = 1.0) -> FloatArray:
        """Draws uniform values in [-b, b), b = gain * sqrt(6 / (fan_in + fan_out)).

        Args:
            shape: Shape of the result; every dimension at least 1.
            fan_in: Inputs of the layer, at least 1.
            fan_out: Outputs of the layer, at least 1.
            gain: Factor of the bound, at least 0.

        Returns:
            float32 array of shape `shape`.

        Raises:
            UsageError: An argument is impossible.
            StreamsExhaustedError: No stream is left.
        """
        bound = _gain(gain) * math.sqrt(6.0 / (_at_least_1("fan_in", fan_in) + _at_least_1("fan_out", fan_out)))
        return self.uniform(shape, -bound, bound)

    def kaiming_normal(self, shape: Shape, fan_in: int, gain: float | None = None) -> FloatArray:
        """Draws normal values of mean 0 and std = gain / sqrt(fan_in).

        Args:
            shape: Shape of the result; every dimension at least 1.
            fan_in: Inputs of the layer, at least 1.
            gain: Factor of the standard deviation, at least 0; None means sqrt(2).

        Returns:
            float32 array of shape `shape`.

        Raises:
            UsageError: An argument is impossible.
            StreamsExhaustedError: No stream is left.
        """
        factor = math.sqrt(2.0) if gain is None else _gain(gain)
        return self.normal(shape, 0.0, factor / math.sqrt(_at_least_1("fan_in", fan_in)))

    def xavier_normal(self, shape: Shape, fan_in: int, fan_out: int, gain: float = 1.0) -> FloatArray:
        """Draws normal values of mean 0 and std = gain * sqrt(2 / (fan_in + fan_out)).

        Args:
            shape: Shape of the result; every dimension at least 1.
            fan_in: Inputs of the layer, at least 1.
            fan_out: Outputs of the layer, at least 1.
            gain: Factor of the standard deviation, at least 0.

        Returns:
            float32 array of shape `shape`.

        Raises:
            UsageError: An argument is impossible.
            StreamsExhaustedError: No stream is left.
        """
        std = _gain(gain) * math.sqrt(2.0 / (_at_least_1("fan_in", fan_in) + _at_least_1("fan_out", fan_out)))
        return self.normal(shape, 0.0, std)

    def dropout(
        self, x: FloatArray, p: float, offset: int = 0, stream: int | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Sets elements of `x` to zero with probability `p` and scales the others by 1 / (1 - p).

        Args:
            x: float32 array, finite.
            p: Drop probability in [0, 1), rounded to float32.
            offset: Index of the first element within the stream; a slice of a batch draws what the batch draws.
            stream: Stream id; None takes the next one, otherwise the counter stays as it is.

        Returns:
            The float32 result in the shape of `x`, and the key that replays its mask in `dropout_backward`.

        Raises:
            DtypeError: `x` is not float32.
            UsageError: `x` is not finite, or another argument is out of range.
            StreamsExhaustedError: No stream is left.
        """
        values = _finite_array("x", x)
        key: dict[str, Any] = {
            "seed": self.seed,
            "stream": None,
            "p": float(philox.drop_probability(p)),
            "scale": float(philox.dropout_scale(p)),
            "offset": _in_range("offset", offset, _MAX_OFFSET),
        }
        key["stream"] = self.next_stream() if stream is None else _in_range("stream", stream, philox.MAX_STREAM)
        return _masked(values, key), key

    def dropout_backward(self, dy: FloatArray, key: Mapping[str, Any]) -> FloatArray:
        """Applies the mask and scale of a `dropout` call to the gradient of its result.

        Args:
            dy: float32 array of the shape that was dropped out, finite.
            key: The key that `dropout` returned.

        Returns:
            float32 array in the shape of `dy`.

        Raises:
            DtypeError: `dy` is not float32.
            UsageError: `dy` is not finite, or `key` is not a dropout key.
        """
        _require_fields("a dropout key", key, _KEY_FIELDS)
        for name, most in (("seed", philox.MAX_SEED), ("stream", philox.MAX_STREAM), ("offset", _MAX_OFFSET)):
            _in_range(f"key[{name!r}]", key[name], most)
        return _masked(_finite_array("dy", dy), key)


def _masked(values: FloatArray, key: Mapping[str, Any]) -> FloatArray:
    return draws.dropout(values, seed=key["seed"], stream=key["stream"], p=key["p"], offset=key["offset"])


def _require_fields(what: str, value: Any, fields: Sequence[str]) -> None:
    if not isinstance(value, Mapping) or set(value) != set(fields):
        got = ", ".join(map(str, value)) if isinstance(value, Mapping) else type(value).__name__
        raise UsageError(f"{what} is a dict with the keys {', '.join(fields)}, got {got}")


def _in_range(name: str, value: Any, most: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise UsageError(f"{name} must be an integer in 0..{most}, got {value!r}") from None
    if not 0 <= number <= most:
        raise UsageError(f"{name} must be an integer in 0..{most}, got {number}")
    return number


def _dimensions(shape: Any) -> tuple[int, ...]:
    dims = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    return tuple(_at_least_1(f"shape[{axis}]", dim) for axis, dim in enumerate(dims))


def _at_least_1(name: str, value: Any) -> int:
    number = _in_range(name, value, 2**63 - 1)
    if number < 1:
        raise UsageError(f"{name} must be at least 1, got {number}")
    return number


def _gain(value: Any) -> float:
    _finite("gain", value)
    if value < 0:
        raise UsageError(f"gain must be at least 0, got {value!r}")
    return float(value)


def _finite(name: str, value: Any) -> float:
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        with np.errstate(over="ignore"):
            rounded = float(np.float32(value))
    except (TypeError, ValueError, OverflowError):
        raise UsageError(f"{name} must be a number, got {value!r}") from None
    if not math.isfinite(rounded):
        raise UsageError(f"{name} must be finite as a float32, got {value!r}")
    return rounded


def _finite_array(name: str, x: Any) -> FloatArray:
    values = view(name, x)
    if values.dtype != np.float32:
        raise DtypeError(f"{name} must be a float32 array, got {values.dtype}; convert it first")
    if not np.isfinite(values).all():
        raise UsageError(f"{name} must be finite, but {np.count_nonzero(~np.isfinite(values))} elements are not")
    return values
