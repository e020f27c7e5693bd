"""The order of the 128 state channels: rotated pairs apart, so that a rotation works on whole blocks.

A rotation mixes channels 2r and 2r+1, r < 32. Inside the mixer the channels stand as J = 4 blocks of R = 32:
the 32 even ones of the pairs, the 32 odd ones, then the 64 that are never rotated. Keys and queries are only ever
contracted with each other, so both may keep that order; only inputs, gradients and the carried state are reordered.
"""

from math import prod

import numpy as np

from trainc.ir.ops.mamba3.sizes import ANGLES, BLOCKS, STATE
from trainc.ir.primitives import barrier, concat, constant, gather, map_, reshape, slice_axis
from trainc.ir.tensor import Tensor

_PAIRED = 2 * ANGLES
_ORDER = np.concatenate([np.arange(0, _PAIRED, 2), np.arange(1, _PAIRED, 2), np.arange(_PAIRED, STATE)])
"""The channel that stands at each place of the blocks."""


def to_blocks(x: Tensor) -> Tensor:
    """Reorder (..., N) into (..., J, R)."""
    rows = prod(x.shape[:-1])
    x_TN = reshape(x, (rows, STATE))
    pairs = reshape(slice_axis(x_TN, 1, 0, _PAIRED), (rows, ANGLES, 2))
    apart = reshape(map_("trj->tjr", lambda e: e, pairs), (rows, _PAIRED))
    ordered = concat([apart, slice_axis(x_TN, 1, _PAIRED, STATE - _PAIRED)], axis=1)
    return reshape(ordered, (*x.shape[:-1], BLOCKS, ANGLES))


def from_blocks(x: Tensor) -> Tensor:
    """Reorder (..., J, R) into (..., N), the inverse of `to_blocks`."""
    rows = prod(x.shape[:-2])
    x_TN = reshape(x, (rows, STATE))
    apart = reshape(slice_axis(x_TN, 1, 0, _PAIRED), (rows, 2, ANGLES))
    pairs = reshape(map_("tjr->trj", lambda e: e, apart), (rows, _PAIRED))
    ordered = concat([pairs, slice_axis(x_TN, 1, _PAIRED, STATE - _PAIRED)], axis=1)
    return reshape(ordered, (*x.shape[:-2], STATE))


def weight_to_blocks(w_TN: Tensor) -> Tensor:
    """Reorder a parameter (rows, N) as `to_blocks` does, in one dispatch that reads the parameter where it lies."""
    ordered = barrier(gather(w_TN, constant(_ORDER, "i32"), axis=1))
    return reshape(ordered, (w_TN.shape[0], BLOCKS, ANGLES))


def weight_from_blocks(d: Tensor) -> Tensor:
    """Reorder the gradient (rows, J, R) of a parameter as `from_blocks` does, in one dispatch that can write it."""
    d_TN = reshape(d, (d.shape[0], STATE))
    return gather(d_TN, constant(np.argsort(_ORDER), "i32"), axis=1)


def block(x: Tensor, axis: int, number: int) -> Tensor:
    """Return one of the J blocks without its dimension: number 0 holds the first of each pair, 1 the second."""
    return reshape(slice_axis(x, axis, number, 1), x.shape[:axis] + x.shape[axis + 1 :])
