"""The self-test that an artifact carries: how its entries' inputs are drawn, and what their outputs must be.

An output is not kept whole but as its fingerprint: its Euclidean norm and its projections on vectors of random signs.
For a vector of signs r and any error e, the mean of (e . r)^2 is |e|^2; so the projections of what a device gives,
less those that were expected, tell the norm of its error without the expected values.
"""

import base64
import binascii
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core import philox
from trainc.core.dtypes import numpy_dtype
from trainc.core.errors import ArtifactError
from trainc.core.fields import Fields
from trainc.core.state_table import Flat, StateTable

Array = npt.NDArray[Any]
Fingerprint = npt.NDArray[np.float64]

PROJECTIONS = 16
IGNORED = -100
"""A target of this value counts nothing."""

LEAST_SHARE = 1e-3
"""Tensors of a buffer that are smaller than this share of all of it are measured against the share.

A gradient that is zero in exact arithmetic is rounding noise in float32: it has no relative error of its own.
"""

_SEED = 20_240_817
_SIGNS_STREAM = 1
_CHUNK = 1 << 15  # elements whose signs are made at a time
_KINDS = {"uniform": 2, "integers": 2, "targets": 2, "constant": 1}


@dataclass(frozen=True)
class Draw:
    """How the elements of an input are drawn.

    Attributes:
        kind: "uniform" in [low, high), "integers" in [low, high), "targets" (integers, a quarter of them `IGNORED`),
            or "constant" (all of them `low`).
        low: Lower bound, or the constant.
        high: Upper bound.
    """

    kind: str
    low: float
    high: float = 0.0

    def text(self) -> str:
        """The draw as the manifest has it, for example "uniform -0.5 0.5"."""
        return " ".join([self.kind, *(repr(float(bound)) for bound in (self.low, self.high)[: _KINDS[self.kind]])])

    @classmethod
    def parse(cls, name: str, value: object) -> "Draw":
        """Read a draw; `name` names it in errors."""
        kind, *bounds = value.split(" ") if isinstance(value, str) else ("",)
        try:
            numbers = [float(bound) for bound in bounds]
        except ValueError:
            numbers = []
        if len(numbers) != _KINDS.get(kind) or not all(map(math.isfinite, numbers)):
            raise ArtifactError(
                f"manifest: selftest.draws.{name} must be one of {list(_KINDS)} and its bounds, got {value!r:.60}"
            )
        return cls(kind, *numbers)

    def elements(self, name: str, shape: tuple[int, ...], dtype: str) -> Array:
        """Draw an array; another name, another stream."""
        count = math.prod(shape)
        if self.kind == "constant":
            return np.full(shape, self.low, numpy_dtype(dtype))
        stream = zlib.crc32(name.encode())
        if self.kind == "uniform":
            return philox.uniform(_SEED, stream, count, self.low, self.high).reshape(shape)
        words = philox.words(_SEED, stream, 0, -(-count // 4)).reshape(-1)[:count].astype(np.uint64)
        span = np.uint64(int(self.high) - int(self.low))
        found = (words * span >> np.uint64(32)).astype(np.int64) + int(self.low)
        if self.kind == "targets":
            found[words % np.uint64(4) == 0] = IGNORED
        return found.astype(numpy_dtype(dtype)).reshape(shape)


def draw_state(draws: Mapping[str, Draw], buffer: str, table: StateTable) -> Flat | None:
    """Draw a flat buffer.

    Args:
        draws: By "BUFFER:TENSOR" or, for all other tensors of a buffer, "BUFFER".
        buffer: The buffer's name.
        table: Its layout.

    Returns:
        float32 [table.size], or None if nothing is said of the buffer: then no entry reads it before writing it.
    """
    if buffer not in draws:
        return None
    flat = np.zeros(table.size, np.float32)
    for name, view in table.views(flat).items():
        key = f"{buffer}:{name}"
        view[...] = draws.get(key, draws[buffer]).elements(key, view.shape, table[name].dtype)
    return flat


def draw_argument(draws: Mapping[str, Draw], entry: str, name: str, shape: tuple[int, ...], dtype: str) -> Array:
    """Draw an argument that is no state.

    Args:
        draws: By "ENTRY:ARGUMENT" or, for an argument of this name in all other entries, "ARGUMENT".
        entry: The entry.
        name: The argument's name.
        shape: Its dimensions.
        dtype: Its element type.

    Raises:
        ArtifactError: Nothing is said of it.
    """
    draw = draws.get(f"{entry}:{name}", draws.get(name))
    if draw is None:
        raise ArtifactError(f"manifest: selftest.draws must say how argument {name!r} of entry {entry!r} is drawn")
    return draw.elements(name, shape, dtype)


def fingerprint(array: npt.ArrayLike) -> Fingerprint:
    """Return the norm of an array and its projections, in float64.

    Args:
        array: Numbers of any shape.

    Returns:
        float64 [1 + PROJECTIONS]; not finite if an element is not.
    """
    flat = np.asarray(array).reshape(-1)
    squares, projected = 0.0, np.zeros(PROJECTIONS)
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, flat.size, _CHUNK):
            part = flat[start : start + _CHUNK].astype(np.float64)
            squares += float(part @ part)
            projected += part @ _signs(start, part.size)
    return np.array([math.sqrt(squares) if squares >= 0 else math.nan, *projected])


def _signs(start: int, count: int) -> npt.NDArray[np.float64]:
    """Return the elements [start, start + count) of the vectors of signs, as [count, PROJECTIONS]; 8 divides start."""
    words = philox.words(_SEED, _SIGNS_STREAM, start // 8, -(-count // 8))
    bits = np.unpackbits(words.astype("<u4").view(np.uint8)).reshape(-1, PROJECTIONS)[:count]
    return bits.astype(np.float64) * 2.0 - 1.0


@dataclass(frozen=True)
class Expected:
    """What an output must be.

    Attributes:
        tolerance: The largest error, relative to the output's norm, with which it counts as right.
        values: Its `fingerprint`.
    """

    tolerance: float
    values: Fingerprint

    def text(self) -> str:
        """The tolerance, and the fingerprint as little-endian float32 in base 64."""
        return f"{self.tolerance:.3g} {base64.b64encode(self.values.astype('<f4').tobytes()).decode()}"

    @classmethod
    def parse(cls, where: str, value: object) -> "Expected":
        """Read one; `where` names it in errors."""
        try:
            tolerance, encoded = value.split(" ") if isinstance(value, str) else ("", "")
            values = np.frombuffer(base64.b64decode(encoded, validate=True), "<f4").astype(np.float64)
            read = cls(float(tolerance), values)
        except (ValueError, binascii.Error):
            read = cls(math.nan, np.zeros(0))
        if not 0 <= read.tolerance < 1 or read.values.size != 1 + PROJECTIONS or not np.isfinite(read.values).all():
            raise ArtifactError(f"manifest: {where} must be a tolerance and a fingerprint, got {value!r:.60}")
        return read

    def error(self, found: Fingerprint, least: float = 0.0) -> float:
        """Return the `relative_error` of an output by its fingerprint."""
        return relative_error(self.values, found, least)


def relative_error(expected: Fingerprint, found: Fingerprint, least: float = 0.0) -> float:
    """Return the norm of the difference of two arrays, relative to the first's.

    Not a number where one is not finite; infinite where the first should be zero, and the second is not.

    Args:
        expected: Fingerprint of the first.
        found: Fingerprint of the second.
        least: What the difference is divided by at least; see `least_norms`.
    """
    if not np.isfinite(expected).all() or not np.isfinite(found).all():
        return math.nan
    error = float(max(abs(found[0] - expected[0]), math.sqrt(float(np.mean((found[1:] - expected[1:]) ** 2)))))
    scale = max(float(expected[0]), least)
    if scale == 0:
        return math.inf if error else 0.0
    return error / scale


def least_norms(outputs: Mapping[str, Fingerprint]) -> dict[str, float]:
    """Return what the error of each output of an entry is divided by at least.

    For a tensor in a buffer it is `LEAST_SHARE` of the norm of all that the entry writes there; for others zero.

    Args:
        outputs: Fingerprints of what is expected, by the names of `SelfTest.entries`.
    """
    squares: dict[str, float] = {}
    for name, values in outputs.items():
        buffer = name.partition(".")[0]
        squares[buffer] = squares.get(buffer, 0.0) + float(values[0]) ** 2
    return {name: LEAST_SHARE * math.sqrt(squares[name.partition(".")[0]]) if "." in name else 0.0 for name in outputs}


@dataclass(frozen=True)
class SelfTest:
    """What `trainc verify` runs and compares.

    Attributes:
        draws: How inputs are drawn; see `draw_state` and `draw_argument`.
        entries: Entry name to the outputs by name. An output is a result of the entry: a tensor, or what it has
            written into a buffer, named "BUFFER.TENSOR", or "BUFFER.*" for the whole of it.
    """

    draws: dict[str, Draw]
    entries: dict[str, dict[str, Expected]]

    def to_json(self) -> dict[str, Any]:
        """The self-test as plain JSON values."""
        return {
            "draws": {name: draw.text() for name, draw in self.draws.items()},
            "entries": {
                entry: {name: expected.text() for name, expected in outputs.items()}
                for entry, outputs in self.entries.items()
            },
        }

    @classmethod
    def from_json(cls, value: object) -> "SelfTest":
        """Read a self-test.

        Raises:
            ArtifactError: A field is missing, unknown or wrong.
        """
        fields = Fields(value, "selftest")

        def outputs(entry: str, value: object) -> dict[str, Expected]:
            inner = Fields({entry: value}, "selftest.entries")
            return inner.each(entry, lambda name, item: Expected.parse(f"selftest.entries.{entry}.{name}", item))

        read = cls(fields.each("draws", Draw.parse), fields.each("entries", outputs))
        fields.done()
        return read
