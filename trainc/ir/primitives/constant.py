"""constant and fill: tensors known when the program is built."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.errors import ShapeError
from trainc.ir.builder import emit
from trainc.ir.registry import OpDef, register
from trainc.ir.tensor import Aval, Tensor


def _infer_constant(*, value: npt.NDArray[Any], dtype: str) -> list[Aval]:
    if value.dtype not in (np.float64, np.int32):
        raise ShapeError(f"expected a float64 or int32 array, got {value.dtype}")
    return [Aval(tuple(value.shape), dtype)]


CONSTANT = register(
    OpDef(
        "constant",
        (),
        _infer_constant,
        attributes=("value", "dtype"),
        reference=lambda *, value, dtype: value,
    )
)


def constant(value: npt.ArrayLike, dtype: str = "f32") -> Tensor:
    """Return a tensor of given elements.

    Args:
        value: Numbers; kept as float64 (or int32) in the program, rounded to dtype when lowered.
        dtype: Dtype of the tensor.
    """
    array = np.asarray(value, np.int32 if dtype == "i32" else np.float64)
    return emit(CONSTANT, [], value=array, dtype=dtype)[0]


def _infer_fill(*, value: float, shape: Sequence[int], dtype: str) -> list[Aval]:
    return [Aval(tuple(shape), dtype)]


FILL = register(
    OpDef(
        "fill",
        (),
        _infer_fill,
        attributes=("value", "shape", "dtype"),
        reference=lambda *, value, shape, dtype: np.full(shape, value, np.int32 if dtype == "i32" else np.float64),
    )
)


def fill(value: float, shape: Sequence[int], dtype: str = "f32") -> Tensor:
    """Return a tensor with one value everywhere."""
    return emit(FILL, [], value=float(value), shape=tuple(shape), dtype=dtype)[0]
