"""relu: the positive part of every element."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.ir import scalar
from trainc.ir.builder import emit
from trainc.ir.ops.expect import expect_dtype, expect_float, expect_shape
from trainc.ir.primitives import elementwise
from trainc.ir.registry import Call, OpDef, register
from trainc.ir.tensor import Aval, Tensor

Array = npt.NDArray[Any]


def _infer(x: Aval) -> list[Aval]:
    expect_float("x", x)
    return [x]


def _reference(x: Array) -> Array:
    return np.where(x <= 0, x.dtype.type(0), x)


def _backward(call: Call, d_results: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    (d_out,) = d_results
    assert d_out is not None
    return emit(RELU_GRAD, [d_out, *call.operands])


RELU = register(
    OpDef(
        "relu",
        ("x",),
        _infer,
        reference=_reference,
        decompose=lambda x: elementwise(lambda e: scalar.select(e <= 0.0, 0.0, e), x),
        backward=_backward,
    )
)


def _infer_grad(d_out: Aval, x: Aval) -> list[Aval]:
    expect_dtype("d_out", d_out, x.dtype)
    expect_shape("d_out", d_out, x.shape)
    return [x]


def _decompose_grad(d_out: Tensor, x: Tensor) -> Tensor:
    return elementwise(lambda d, e: scalar.select(e <= 0.0, 0.0, d), d_out, x)


RELU_GRAD = register(OpDef("relu_grad", ("d_out", "x"), _infer_grad, decompose=_decompose_grad))


def relu(x: Tensor) -> Tensor:
    """Return max(x, 0) (spec section 9), NaN where x is NaN; its gradient at 0 is 0.

    Args:
        x: Any shape, float.

    Returns:
        The shape of x.

    Raises:
        DtypeError: x is not float.
    """
    return emit(RELU, [x])[0]
