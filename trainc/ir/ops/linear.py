"""linear: x @ weight^T over the last dimension.

Shapes: K inputs, N outputs, T rows of x in all.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy.typing as npt

from trainc.core.errors import ShapeError
from trainc.ir.builder import emit
from trainc.ir.ops.expect import expect_dtype, expect_float, expect_rank, expect_rank_at_least
from trainc.ir.primitives import barrier, map_, matmul, reshape
from trainc.ir.registry import Call, OpDef, register
from trainc.ir.tensor import Aval, Tensor

Array = npt.NDArray[Any]

_FEW_ROWS = 64
"""Up to here a copy of the transposed weight costs more than it gains: the rows are transposed instead."""


def _infer(x: Aval, weight: Aval) -> list[Aval]:
    expect_float("x", x)
    expect_dtype("weight", weight, x.dtype)
    expect_rank("weight", weight, 2, "(N, K)")
    expect_rank_at_least("x", x, 1, "(..., K)")
    if x.shape[-1] != weight.shape[1]:
        raise ShapeError(f"expected x (..., {weight.shape[1]}) for weight {weight.shape}, got x {x.shape}")
    return [Aval((*x.shape[:-1], weight.shape[0]), x.dtype)]


def _reference(x: Array, weight_NK: Array) -> Array:
    return x @ weight_NK.T


def _rows(x: Tensor) -> Tensor:
    """Merge all dimensions but the last."""
    return reshape(x, (prod(x.shape[:-1]), x.shape[-1]))


def _decompose(x: Tensor, weight_NK: Tensor) -> Tensor:
    x_TK = _rows(x)
    out_shape = (*x.shape[:-1], weight_NK.shape[0])
    if x_TK.shape[0] == 1:
        # The barrier, because what makes x would be computed again for every output.
        return reshape(matmul("nk,k->n", weight_NK, barrier(reshape(x_TK, x_TK.shape[1:]))), out_shape)
    if 1 < x_TK.shape[0] <= _FEW_ROWS:
        out_NT = matmul("nk,kt->nt", weight_NK, _transposed(x_TK))
        return reshape(_transposed(out_NT), out_shape)
    return reshape(matmul("tk,kn->tn", x_TK, _transposed(weight_NK)), out_shape)


def _transposed(a: Tensor) -> Tensor:
    """Copy (A, B) to (B, A); without the barriers the copy would be folded back into the product, which slows it."""
    return barrier(map_("ab->ba", lambda e: e, barrier(a)))


def _backward(call: Call, d_results: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    x, weight = call.operands
    (d_out,) = d_results
    assert d_out is not None
    d_x = emit(LINEAR_GRAD_X, [d_out, weight])[0] if call.needs[0] else None
    d_weight = emit(LINEAR_GRAD_WEIGHT, [d_out, x])[0] if call.needs[1] else None
    return d_x, d_weight


LINEAR = register(
    OpDef("linear", ("x", "weight"), _infer, reference=_reference, decompose=_decompose, backward=_backward)
)


def _infer_grad_x(d_out: Aval, weight: Aval) -> list[Aval]:
    if d_out.shape[-1:] != weight.shape[:1]:
        raise ShapeError(f"expected d_out (..., {weight.shape[0]}), got {d_out.shape}")
    return [Aval((*d_out.shape[:-1], weight.shape[1]), d_out.dtype)]


def _decompose_grad_x(d_out: Tensor, weight_NK: Tensor) -> Tensor:
    d_x_TK = matmul("tn,nk->tk", _rows(d_out), weight_NK)
    return reshape(d_x_TK, (*d_out.shape[:-1], weight_NK.shape[1]))


LINEAR_GRAD_X = register(OpDef("linear_grad_x", ("d_out", "weight"), _infer_grad_x, decompose=_decompose_grad_x))


def _infer_grad_weight(d_out: Aval, x: Aval) -> list[Aval]:
    if d_out.shape[:-1] != x.shape[:-1]:
        raise ShapeError(f"expected d_out and x with the same leading dimensions, got {d_out.shape} and {x.shape}")
    return [Aval((d_out.shape[-1], x.shape[-1]), d_out.dtype)]


LINEAR_GRAD_WEIGHT = register(
    OpDef(
        "linear_grad_weight",
        ("d_out", "x"),
        _infer_grad_weight,
        decompose=lambda d_out, x: matmul("tn,tk->nk", _rows(d_out), _rows(x)),
    )
)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """Return x @ weight^T (spec sections 1 and 9).

    Args:
        x: Shape (..., K), float.
        weight: Shape (N, K), the dtype of x.

    Returns:
        Shape (..., N).

    Raises:
        ShapeError: The inner sizes differ, or the weight is not of rank 2.
        DtypeError: The operands are not floats of one dtype.
    """
    return emit(LINEAR, [x, weight])[0]
