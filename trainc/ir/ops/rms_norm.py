"""rms_norm: rows divided by their root mean square, times a weight.

Shapes: D row length, T rows in all.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.errors import UsageError
from trainc.ir import scalar
from trainc.ir.builder import emit
from trainc.ir.ops.expect import expect_dtype, expect_float, expect_rank_at_least, expect_shape
from trainc.ir.ops.row_sums import sum_rows
from trainc.ir.primitives import elementwise, map_, reduce_sum, reshape
from trainc.ir.registry import Call, OpDef, register
from trainc.ir.tensor import Aval, Tensor

Array = npt.NDArray[Any]


def _infer(x: Aval, weight: Aval, *, eps: float) -> list[Aval]:
    expect_float("x", x)
    expect_rank_at_least("x", x, 1, "(..., D)")
    expect_dtype("weight", weight, x.dtype)
    expect_shape("weight", weight, x.shape[-1:])
    if not eps >= 0.0:
        raise UsageError(f"expected eps of at least 0, got {eps}")
    return [x, Aval(x.shape[:-1], x.dtype)]


def _reference(x: Array, weight_D: Array, *, eps: float) -> tuple[Array, Array]:
    inverse = np.empty(x.shape[:-1], x.dtype)
    for row in np.ndindex(*inverse.shape):
        inverse[row] = 1.0 / np.sqrt(np.mean(x[row] ** 2) + eps)
    return weight_D * (x * inverse[..., None]), inverse


def _decompose(x: Tensor, weight_D: Tensor, *, eps: float) -> tuple[Tensor, Tensor]:
    rows, width = prod(x.shape[:-1]), x.shape[-1]
    x_TD = reshape(x, (rows, width))
    sum_T = reduce_sum("td->t", elementwise(lambda e: e * e, x_TD))
    inverse_T = elementwise(lambda total: 1.0 / scalar.sqrt(total / float(width) + eps), sum_T)
    out_TD = map_("td,t,d->td", lambda e, r, w: w * (e * r), x_TD, inverse_T, weight_D)
    return reshape(out_TD, x.shape), reshape(inverse_T, x.shape[:-1])


def _backward(call: Call, d_results: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    x, weight = call.operands
    d_out = d_results[0]
    assert d_out is not None
    return emit(RMS_NORM_GRAD, [d_out, x, weight, call.results[1]])


RMS_NORM = register(
    OpDef(
        "rms_norm",
        ("x", "weight"),
        _infer,
        attributes=("eps",),
        reference=_reference,
        decompose=_decompose,
        backward=_backward,
    )
)


def _infer_grad(d_out: Aval, x: Aval, weight: Aval, inverse: Aval) -> list[Aval]:
    expect_shape("d_out", d_out, x.shape)
    expect_shape("weight", weight, x.shape[-1:])
    expect_shape("inverse", inverse, x.shape[:-1])
    return [x, weight]


def _decompose_grad(d_out: Tensor, x: Tensor, weight_D: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
    rows, width = prod(x.shape[:-1]), x.shape[-1]
    d_out_TD, x_TD, inverse_T = reshape(d_out, (rows, width)), reshape(x, (rows, width)), reshape(inverse, (rows,))
    # With n = x * inverse: d_n = d_out * w and d_x = inverse * (d_n - n * mean(d_n * n)).
    dot_T = reduce_sum("td->t", map_("td,td,d->td", lambda d, e, w: d * w * e, d_out_TD, x_TD, weight_D))
    pull_T = elementwise(lambda dot, r: dot * r * r / float(width), dot_T, inverse_T)
    d_x_TD = map_(
        "td,td,d,t,t->td", lambda d, e, w, r, pull: r * (d * w - e * pull), d_out_TD, x_TD, weight_D, inverse_T, pull_T
    )
    d_weight_D = sum_rows(map_("td,td,t->td", lambda d, e, r: d * (e * r), d_out_TD, x_TD, inverse_T))
    return reshape(d_x_TD, x.shape), d_weight_D


RMS_NORM_GRAD = register(
    OpDef("rms_norm_grad", ("d_out", "x", "weight", "inverse"), _infer_grad, decompose=_decompose_grad)
)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return weight * (x / sqrt(mean(x^2) + eps)) over the last dimension (spec section 2; gradient: spec section 9).

    Args:
        x: Shape (..., D), float.
        weight: Shape (D,), the dtype of x.
        eps: Added to the mean square; at least 0, rounded to float32.

    Returns:
        The shape of x.

    Raises:
        ShapeError: The weight's shape is not (D,).
        DtypeError: The operands are not floats of one dtype.
        UsageError: eps is negative.
    """
    return emit(RMS_NORM, [x, weight], eps=float(np.float32(eps)))[0]
