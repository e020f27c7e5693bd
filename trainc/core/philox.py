"""Philox4x32-10 streams on the host: the bits of every random draw in trainc (spec section 5).

A draw is a pure function of (seed, stream, element index), so any slice of it can be computed alone. The
generator is the counter-based one of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core import checks
from trainc.core.errors import ConfigError, UsageError
from trainc.core.float32 import FloatArray, cos, fma, log

MAX_SEED = 2**64 - 1
MAX_STREAM = 2**32 - 1

_ROUNDS = 10
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW32 = np.uint64(0xFFFFFFFF)
_SHIFT32 = np.uint64(32)
_CHUNK_BLOCKS = 8192  # keeps the temporaries of one chunk inside a core's own cache

_UNIT = np.float32(2.0**-24)
_TWO_PI = np.float32(6.2831854820251465)
_MINUS_TWO = np.float32(-2.0)


def words(seed: int, stream: int, first_block: int, count: int) -> npt.NDArray[np.uint32]:
    """Returns `count` consecutive blocks of a stream.

    Args:
        seed: Key, in [0, 2**64).
        stream: Stream id, in [0, 2**32).
        first_block: Index of the first block, in [0, 2**64).
        count: Number of blocks.

    Returns:
        uint32 array of shape (count, 4).

    Raises:
        UsageError: An argument is out of its range.
    """
    check_stream(seed, stream)
    if first_block < 0 or count < 0 or first_block + count > 2**64:
        raise UsageError(f"blocks {first_block}..{first_block + count} of a stream do not lie in 0..2**64")
    blocks = np.arange(count, dtype=np.uint64)
    blocks += np.uint64(first_block)
    c0, c1 = blocks & _LOW32, blocks >> _SHIFT32
    c2, c3 = np.full_like(blocks, stream), np.zeros_like(blocks)
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(_ROUNDS):
        p0, p1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0 = p1 >> _SHIFT32
        c0 ^= c1
        c0 ^= np.uint64(k0)
        c2 = p0 >> _SHIFT32
        c2 ^= c3
        c2 ^= np.uint64(k1)
        c1, c3 = p1 & _LOW32, p0 & _LOW32
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


def uniform(seed: int, stream: int, count: int, low: float = 0.0, high: float = 1.0, offset: int = 0) -> FloatArray:
    """Draws values uniform in [low, high).

    Args:
        seed: Key, in [0, 2**64).
        stream: Stream id, in [0, 2**32).
        count: Number of values.
        low: Lower bound, rounded to float32.
        high: Upper bound, rounded to float32.
        offset: Index of the first value within the stream.

    Returns:
        float32 array of shape (count,).

    Raises:
        UsageError: `seed`, `stream` or the element indices are out of range.
    """
    bottom = np.float32(low)
    span = np.float32(np.float32(high) - bottom)

    def draw(block_words: npt.NDArray[np.uint32]) -> FloatArray:
        return fma(_unit(block_words.reshape(-1)), span, bottom)

    return _by_chunk(seed, stream, count, offset, 4, np.float32, draw)


def normal(seed: int, stream: int, count: int, mean: float = 0.0, std: float = 1.0, offset: int = 0) -> FloatArray:
    """Draws normal values by the cosine branch of Box-Muller, two words a value.

    Args:
        seed: Key, in [0, 2**64).
        stream: Stream id, in [0, 2**32).
        count: Number of values.
        mean: Mean, rounded to float32.
        std: Standard deviation, rounded to float32.
        offset: Index of the first value within the stream.

    Returns:
        float32 array of shape (count,).

    Raises:
        UsageError: `seed`, `stream` or the element indices are out of range.
    """

    def draw(block_words: npt.NDArray[np.uint32]) -> FloatArray:
        pairs = block_words.reshape(-1, 2)
        open_unit = _unit(pairs[:, 0]) + _UNIT  # in (0, 1], so that its logarithm is finite
        radius = np.sqrt(log(open_unit) * _MINUS_TWO)
        return fma(np.float32(std), radius * cos(_unit(pairs[:, 1]) * _TWO_PI), np.float32(mean))

    return _by_chunk(seed, stream, count, offset, 2, np.float32, draw)


def keep_mask(seed: int, stream: int, count: int, p: float, offset: int = 0) -> npt.NDArray[np.bool_]:
    """Draws a dropout mask: an element is kept when its unit draw is at least `p`.

    Args:
        seed: Key, in [0, 2**64).
        stream: Stream id, in [0, 2**32).
        count: Number of elements.
        p: Drop probability in [0, 1), rounded to float32.
        offset: Index of the first element within the stream.

    Returns:
        bool array of shape (count,), True where the element is kept.

    Raises:
        UsageError: An argument is out of its range.
    """
    threshold = drop_probability(p)

    def draw(block_words: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
        return _unit(block_words.reshape(-1)) >= threshold

    return _by_chunk(seed, stream, count, offset, 4, np.bool_, draw)


def drop_probability(p: float) -> np.float32:
    """Returns a drop probability rounded to float32.

    Raises:
        UsageError: `p` is not in [0, 1) after rounding.
    """
    try:
        return np.float32(checks.float32_below_1("p", p))
    except ConfigError:
        raise UsageError(f"p, the drop probability, must be in [0, 1) as a float32, got {p!r}") from None


def dropout_scale(p: float) -> np.float32:
    """Returns the factor `1 / (1 - p)` of the kept elements, computed in float32.

    Raises:
        UsageError: `p` is not in [0, 1) after rounding to float32.
    """
    return np.float32(np.float32(1.0) / (np.float32(1.0) - drop_probability(p)))


def _unit(block_words: npt.NDArray[np.uint32]) -> FloatArray:
    """Maps words to multiples of 2**-24 in [0, 1); exact."""
    return (block_words >> np.uint32(8)).astype(np.float32) * _UNIT


def _by_chunk(
    seed: int,
    stream: int,
    count: int,
    offset: int,
    per_block: int,
    dtype: Any,
    draw: Callable[[npt.NDArray[np.uint32]], npt.NDArray[Any]],
) -> npt.NDArray[Any]:
    """Fills elements [offset, offset + count) of a stream that yields `per_block` elements a block."""
    check_stream(seed, stream)
    if offset < 0 or count < 0:
        raise UsageError(f"offset and count of a draw must not be negative, got offset {offset}, count {count}")
    out = np.empty(count, dtype)
    done = 0
    while done < count:
        block, skip = divmod(offset + done, per_block)
        take = min(count - done, _CHUNK_BLOCKS * per_block - skip)
        values = draw(words(seed, stream, block, -(-(skip + take) // per_block)))
        out[done : done + take] = values[skip : skip + take]
        done += take
    return out


def check_stream(seed: int, stream: int) -> None:
    """Raises UsageError unless a stream is one of those there are.

    Args:
        seed: Key, in [0, 2**64).
        stream: Stream id, in [0, 2**32).
    """
    if not 0 <= seed <= MAX_SEED:
        raise UsageError(f"seed must be in [0, 2**64), got {seed}")
    if not 0 <= stream <= MAX_STREAM:
        raise UsageError(f"stream must be in [0, 2**32), got {stream}")
