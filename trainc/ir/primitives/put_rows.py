"""put_rows: some rows of a tensor replaced, where it lies if it is state."""

from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.errors import DtypeError, ShapeError
from trainc.ir.builder import emit
from trainc.ir.registry import OpDef, register
from trainc.ir.tensor import Aval, Tensor

Array = npt.NDArray[Any]


def _infer(x: Aval, rows: Aval, start: Aval, *, axis: int) -> list[Aval]:
    if rows.dtype != x.dtype or start != Aval((), "i32"):
        raise DtypeError(f"expected rows of dtype {x.dtype} and a start i32 (), got {rows.dtype} and {start}")
    if len(x.shape) != len(rows.shape) or not 0 <= axis < len(x.shape):
        raise ShapeError(f"expected rows of rank {len(x.shape)} and an axis in it, got {rows.shape} and {axis}")
    if any(n > size if i == axis else n != size for i, (n, size) in enumerate(zip(rows.shape, x.shape, strict=True))):
        raise ShapeError(f"expected rows that fit {x.shape}, fewer along axis {axis} only, got {rows.shape}")
    return [x]


def _reference(x: Array, rows: Array, start: Array, *, axis: int) -> Array:
    out = x.copy()
    np.moveaxis(out, axis, 0)[int(start) : int(start) + rows.shape[axis]] = np.moveaxis(rows, axis, 0)
    return out


PUT_ROWS = register(OpDef("put_rows", ("x", "rows", "start"), _infer, attributes=("axis",), reference=_reference))


def put_rows(x: Tensor, rows: Tensor, start: Tensor, axis: int) -> Tensor:
    """Return a tensor with some consecutive rows of an axis replaced.

    Where x is a tensor of a state and the result its new value, only those rows are touched. Such an entry must use
    the result, and x itself only for computing the rows.

    Args:
        x: Any shape.
        rows: The shape of x, but for the number of rows along the axis.
        start: i32 (), where the first one goes; the caller checks that all fit before anything runs.
        axis: The axis.
    """
    return emit(PUT_ROWS, [x, rows, start], axis=axis)[0]
