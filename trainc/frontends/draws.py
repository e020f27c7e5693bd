"""Uniform values and dropout at stream coordinates: on the host where few, compiled where many, the same bits.

Compiled code draws about as fast as it writes memory; the host needs no compiler and no runtime. Where a kernel was
never compiled and there is no compiler, the host draws.
"""

import functools
import logging
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trainc.core import philox
from trainc.core.errors import UnsupportedError, UsageError
from trainc.core.float32 import FloatArray
from trainc.frontends.kernels import load_kernel
from trainc.runtime.buffers import HostMemory, aligned_zeros
from trainc.runtime.program import Program

if TYPE_CHECKING:
    from trainc.frontends.tracing.artifact import Source

logger = logging.getLogger(__name__)

COMPILED_ELEMENTS = 2**20
"""Draws of at least this many elements are compiled ones: the host takes 15 ns for an element."""

_LEAST = np.float32(2.0**-60)  # values are multiples of 2**-48 of the smaller of low and span
_CHUNK_ELEMENTS = 2**22  # a multiple of 16, so that every chunk of an aligned array is aligned
_WORD = 2**32


def uniform(seed: int, stream: int, count: int, low: float, high: float, offset: int = 0) -> FloatArray:
    """Draws values uniform in [low, high); arguments, result and errors are those of `philox.uniform`."""
    kernel = _kernel_for("uniform", seed, stream, count, offset)
    if kernel is None or not _far_from_subnormal(low, high):
        return philox.uniform(seed, stream, count, low, high, offset)
    bottom = np.float32(low)
    scalars = {"low": float(bottom), "span": float(np.float32(np.float32(high) - bottom))}
    out = aligned_zeros((count,), np.float32)
    for start in range(0, count, _CHUNK_ELEMENTS):
        part = out[start : start + _CHUNK_ELEMENTS]
        memory = HostMemory(kernel.device, part)
        key = _key(seed, stream, offset + start)
        kernel.call("uniform", {"out": memory, "key": key, "length": part.size, **scalars})
    return out


def dropout(values: FloatArray, *, seed: int, stream: int, p: float, offset: int) -> FloatArray:
    """Multiplies the kept elements of an array by 1 / (1 - p) and sets the others to +0.0 (spec section 5).

    Args:
        values: float32 array.
        seed: Key, in [0, 2**64).
        stream: Stream id, in [0, 2**32).
        p: Drop probability in [0, 1), rounded to float32.
        offset: Index of the first element within the stream, in [0, 2**64).

    Returns:
        A new float32 array in the shape of `values`.

    Raises:
        UsageError: An argument is out of its range.
    """
    scale = philox.dropout_scale(p)
    kernel = _kernel_for("dropout", seed, stream, values.size, offset)
    if kernel is None or _any_subnormal(values):
        keep = philox.keep_mask(seed, stream, values.size, p, offset)
        with np.errstate(over="ignore"):
            return np.where(keep.reshape(values.shape), values * scale, np.float32(0.0))
    # An element is kept when its word's upper 24 bits are at least p * 2**24, which is exact.
    scalars = {"threshold": ceil(float(philox.drop_probability(p)) * 2.0**24), "scale": float(scale)}
    out = np.empty(values.shape, np.float32)
    source, result = np.ascontiguousarray(values).reshape(-1), out.reshape(-1)
    for start in range(0, values.size, _CHUNK_ELEMENTS):
        part = slice(start, start + _CHUNK_ELEMENTS)
        key = _key(seed, stream, offset + start)
        result[part] = kernel.call("dropout", {"x": source[part], "key": key, **scalars})["y"]
    return out


def _far_from_subnormal(low: float, high: float) -> bool:
    """Whether no value of a draw can be subnormal: compiled code would take such a value for zero."""
    bottom, span = np.float32(low), np.float32(np.float32(high) - np.float32(low))
    return bool(span >= _LEAST and (bottom == 0 or abs(bottom) >= _LEAST))


def _any_subnormal(values: FloatArray) -> bool:
    magnitude = np.abs(values)
    return bool(((magnitude < np.finfo(np.float32).tiny) & (magnitude > 0)).any())


def _kernel_for(name: str, seed: int, stream: int, count: int, offset: int) -> Program | None:
    """Return the kernel of a draw, or None where the host should draw."""
    philox.check_stream(seed, stream)
    if not 0 <= offset < _WORD**2:
        raise UsageError(f"offset must be in [0, 2**64), got {offset}")
    if count < COMPILED_ELEMENTS or offset + count > _WORD**2:
        return None
    return _kernel(name)


@functools.cache
def _kernel(name: str) -> Program | None:
    def source() -> "Source":
        from trainc.frontends.tracing.draws import DRAWS

        return DRAWS[name]()

    try:
        return load_kernel(name, {}, source)
    except UnsupportedError as error:
        logger.debug("the host draws: %s", error)
        return None


def _key(seed: int, stream: int, offset: int) -> npt.NDArray[np.int32]:
    words: list[Any] = [seed % _WORD, seed // _WORD, stream, offset % _WORD, offset // _WORD]
    return np.array(words, np.uint32).view(np.int32)
