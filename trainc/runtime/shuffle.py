"""A shuffled order of any length that is computed place by place, without a table.

The order is a permutation made by a Feistel network over the smallest power of four that holds all places; places that
land outside are sent through again until they land inside ("cycle walking").
"""

import numpy as np
import numpy.typing as npt

from trainc.core import philox

_ROUNDS = 8
_DOMAIN = 0x9D2C5680B5297A4D  # keeps the order's draws apart from those of weights and dropout under the same seed
_LOW32 = np.uint64(0xFFFFFFFF)


def shuffled(places: npt.ArrayLike, count: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """What stands at some places of a shuffled 0..count-1.

    Args:
        places: Places in [0, count).
        count: Length of the order.
        seed: In [0, 2**64).
        epoch: Each epoch has its own order; in [0, 2**32).

    Returns:
        int64, in the shape of `places`: different places give different values, all places all values.
    """
    values = np.asarray(places, np.uint64).copy()
    keys = philox.words(seed ^ _DOMAIN, epoch, 0, _ROUNDS // 4).reshape(-1).astype(np.uint64)
    half_bits = np.uint64(max(1, ((count - 1).bit_length() + 1) // 2))
    outside = np.ones(values.shape, bool)
    while outside.any():
        values[outside] = _permute(values[outside], half_bits, keys)
        outside = values >= count
    return values.astype(np.int64)


def _permute(
    values: npt.NDArray[np.uint64], half_bits: np.uint64, keys: npt.NDArray[np.uint64]
) -> npt.NDArray[np.uint64]:
    mask = (np.uint64(1) << half_bits) - np.uint64(1)
    left, right = values >> half_bits, values & mask
    for key in keys:
        left, right = right, left ^ (_mix(right ^ key) & mask)
    return (left << half_bits) | right


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Spread every bit of a 32-bit word over all of it (the finaliser of MurmurHash3)."""
    x = ((x ^ (x >> np.uint64(16))) * np.uint64(0x85EBCA6B)) & _LOW32
    x = ((x ^ (x >> np.uint64(13))) * np.uint64(0xC2B2AE35)) & _LOW32
    return x ^ (x >> np.uint64(16))
