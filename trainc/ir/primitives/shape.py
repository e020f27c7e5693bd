"""reshape, slice, pad, concat: moving elements without computing."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.errors import DtypeError, ShapeError
from trainc.ir.builder import emit
from trainc.ir.registry import Call, OpDef, register
from trainc.ir.tensor import Aval, Tensor

Array = npt.NDArray[Any]


def _infer_reshape(x: Aval, *, shape: Sequence[int]) -> list[Aval]:
    if prod(shape) != prod(x.shape):
        raise ShapeError(f"expected a shape of {prod(x.shape)} elements, got {tuple(shape)}")
    return [Aval(tuple(shape), x.dtype)]


def _reshape_backward(call: Call, d_results: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    (d_out,) = d_results
    return (reshape(d_out, call.operands[0].shape) if d_out is not None else None,)


RESHAPE = register(
    OpDef(
        "reshape",
        ("x",),
        _infer_reshape,
        attributes=("shape",),
        reference=lambda x, *, shape: np.reshape(x, shape),
        backward=_reshape_backward,
    )
)


def reshape(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the same elements in row-major order under another shape."""
    return x if tuple(shape) == x.shape else emit(RESHAPE, [x], shape=tuple(shape))[0]


def _infer_slice(x: Aval, *, starts: Sequence[int], sizes: Sequence[int], strides: Sequence[int]) -> list[Aval]:
    if not len(starts) == len(sizes) == len(strides) == len(x.shape):
        raise ShapeError(f"expected {len(x.shape)} starts, sizes and strides, got {starts}, {sizes}, {strides}")
    for axis, (start, size, stride) in enumerate(zip(starts, sizes, strides, strict=True)):
        if start < 0 or size < 1 or stride < 1 or start + (size - 1) * stride >= x.shape[axis]:
            raise ShapeError(
                f"axis {axis} has size {x.shape[axis]}: start {start}, size {size}, stride {stride} leave it"
            )
    return [Aval(tuple(sizes), x.dtype)]


def _slice_reference(x: Array, *, starts: Sequence[int], sizes: Sequence[int], strides: Sequence[int]) -> Array:
    ranges = [
        slice(start, start + (size - 1) * stride + 1, stride)
        for start, size, stride in zip(starts, sizes, strides, strict=True)
    ]
    return x[tuple(ranges)]


SLICE = register(
    OpDef("slice", ("x",), _infer_slice, attributes=("starts", "sizes", "strides"), reference=_slice_reference)
)


def slice_axis(x: Tensor, axis: int, start: int, size: int, stride: int = 1) -> Tensor:
    """Return elements start, start+stride, ... (size of them) along one axis."""
    starts, sizes, strides = [0] * x.rank, list(x.shape), [1] * x.rank
    starts[axis], sizes[axis], strides[axis] = start, size, stride
    if tuple(sizes) == x.shape:
        return x
    return emit(SLICE, [x], starts=tuple(starts), sizes=tuple(sizes), strides=tuple(strides))[0]


def split(x: Tensor, axis: int, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """Cut an axis into consecutive pieces of the given sizes."""
    starts = np.cumsum([0, *sizes]).tolist()
    if starts[-1] != x.shape[axis]:
        raise ShapeError(f"expected sizes summing to {x.shape[axis]} along axis {axis}, got {tuple(sizes)}")
    return tuple(slice_axis(x, axis, start, size) for start, size in zip(starts[:-1], sizes, strict=True))


def _infer_pad(x: Aval, *, low: Sequence[int], high: Sequence[int]) -> list[Aval]:
    if len(low) != len(x.shape) or len(high) != len(x.shape) or min((*low, *high), default=0) < 0:
        raise ShapeError(f"expected {len(x.shape)} non-negative sizes on each side, got {low}, {high}")
    return [Aval(tuple(a + s + b for a, s, b in zip(low, x.shape, high, strict=True)), x.dtype)]


PAD = register(
    OpDef(
        "pad",
        ("x",),
        _infer_pad,
        attributes=("low", "high"),
        reference=lambda x, *, low, high: np.pad(x, list(zip(low, high, strict=True))),
    )
)


def pad_axis(x: Tensor, axis: int, low: int, high: int) -> Tensor:
    """Put zeros before and after one axis."""
    if low == 0 and high == 0:
        return x
    lows, highs = [0] * x.rank, [0] * x.rank
    lows[axis], highs[axis] = low, high
    return emit(PAD, [x], low=tuple(lows), high=tuple(highs))[0]


def _infer_concat(*parts: Aval, axis: int) -> list[Aval]:
    first = parts[0]
    for part in parts[1:]:
        same = [i for i in range(len(first.shape)) if i != axis]
        if len(part.shape) != len(first.shape) or any(part.shape[i] != first.shape[i] for i in same):
            raise ShapeError(f"expected parts that differ along axis {axis} only, got {first.shape} and {part.shape}")
        if part.dtype != first.dtype:
            raise DtypeError(f"expected parts of one dtype, got {first.dtype} and {part.dtype}")
    shape = list(first.shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    return [Aval(tuple(shape), first.dtype)]


CONCAT = register(
    OpDef(
        "concat",
        ("parts*",),
        _infer_concat,
        attributes=("axis",),
        reference=lambda *parts, axis: np.concatenate(parts, axis=axis),
    )
)


def concat(parts: Sequence[Tensor], axis: int) -> Tensor:
    """Join tensors along an axis."""
    return parts[0] if len(parts) == 1 else emit(CONCAT, parts, axis=axis)[0]
