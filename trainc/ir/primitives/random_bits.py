"""random_bits: counter-based random words, the same for every target and batch split."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.errors import DtypeError, ShapeError
from trainc.core.philox import words
from trainc.ir.builder import emit
from trainc.ir.mlir import DYNAMIC
from trainc.ir.registry import OpDef, register
from trainc.ir.tensor import Aval, Tensor


def _infer(key: Aval, *like: Aval, shape: Sequence[int]) -> list[Aval]:
    if key.dtype != "i32":
        raise DtypeError(f"expected an i32 key, got {key.dtype}")
    if key.shape != (5,):
        raise ShapeError(f"expected a key of 5 words (seed low, seed high, stream, offset low, high), got {key.shape}")
    dynamic = DYNAMIC in shape
    if len(like) != dynamic or any(value.shape != tuple(shape) for value in like):
        raise ShapeError(f"expected one operand of shape {tuple(shape)} if a call chooses it and none otherwise")
    if dynamic and len(shape) != 1:
        raise ShapeError(f"expected one dimension where a call chooses the size, got {tuple(shape)}")
    return [Aval(tuple(shape), "i32")]


def _reference(key: npt.NDArray[np.int32], *like: npt.NDArray[Any], shape: Sequence[int]) -> npt.NDArray[Any]:
    shape = like[0].shape if like else shape
    seed_low, seed_high, stream, offset_low, offset_high = (int(word) & 0xFFFFFFFF for word in key)
    first_block, skipped = divmod(offset_low | offset_high << 32, 4)
    blocks = words(seed_low | seed_high << 32, stream, first_block, (skipped + prod(shape) + 3) // 4)
    return blocks.reshape(-1)[skipped : skipped + prod(shape)].view(np.int32).reshape(shape)


RANDOM_BITS = register(OpDef("random_bits", ("key", "like*"), _infer, attributes=("shape",), reference=_reference))


def random_bits(key: Tensor, like: Tensor) -> Tensor:
    """Return Philox4x32-10 words, one an element in row-major order.

    Args:
        key: i32 (5,): seed low and high words, stream, element offset low and high words.
        like: Has the shape of the result; its elements are not read.

    Returns:
        i32 words (to be read as unsigned) of elements offset, offset+1, ... of the stream
        (spec section 5: counter = (block low, block high, stream, 0), element i is word i%4 of block i//4).
    """
    operands = [key, like] if DYNAMIC in like.shape else [key]
    return emit(RANDOM_BITS, operands, shape=like.shape)[0]
