"""embedding: rows of a table by integer id.

Shapes: V rows of the table, D row length, T ids in all.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.ir.builder import emit
from trainc.ir.ops.expect import expect_dtype, expect_float, expect_rank, expect_shape
from trainc.ir.primitives import gather, reshape, scatter_add
from trainc.ir.registry import Call, OpDef, register
from trainc.ir.tensor import Aval, Tensor

Array = npt.NDArray[Any]


def _infer(weight: Aval, ids: Aval) -> list[Aval]:
    expect_float("weight", weight)
    expect_rank("weight", weight, 2, "(V, D)")
    expect_dtype("ids", ids, "i32")
    return [Aval((*ids.shape, weight.shape[1]), weight.dtype)]


def _reference(weight_VD: Array, ids: Array) -> Array:
    out = np.empty((*ids.shape, weight_VD.shape[1]), weight_VD.dtype)
    for position in np.ndindex(*ids.shape):
        out[position] = weight_VD[ids[position]]
    return out


def _backward(call: Call, d_results: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    weight, ids = call.operands
    (d_out,) = d_results
    assert d_out is not None
    return emit(EMBEDDING_GRAD, [d_out, ids], rows=weight.shape[0])[0], None


EMBEDDING = register(
    OpDef(
        "embedding",
        ("weight", "ids"),
        _infer,
        reference=_reference,
        decompose=lambda weight, ids: gather(weight, ids, axis=0),
        backward=_backward,
    )
)


def _infer_grad(d_out: Aval, ids: Aval, *, rows: int) -> list[Aval]:
    expect_dtype("ids", ids, "i32")
    expect_shape("d_out", d_out, (*ids.shape, *d_out.shape[-1:]))
    return [Aval((rows, d_out.shape[-1]), d_out.dtype)]


def _decompose_grad(d_out: Tensor, ids: Tensor, *, rows: int) -> Tensor:
    tokens = prod(ids.shape)
    return scatter_add(reshape(d_out, (tokens, d_out.shape[-1])), reshape(ids, (tokens,)), rows)


EMBEDDING_GRAD = register(
    OpDef("embedding_grad", ("d_out", "ids"), _infer_grad, attributes=("rows",), decompose=_decompose_grad)
)


def embedding(weight: Tensor, ids: Tensor) -> Tensor:
    """Return the rows that ids name (spec section 4); the table's gradient sums rows in order of position.

    Args:
        weight: Table (V, D), float.
        ids: i32 of any shape, in [0, V); the caller checks the range before anything runs.

    Returns:
        Shape (*ids.shape, D), the dtype of weight.

    Raises:
        ShapeError: The table is not of rank 2.
        DtypeError: The table is not float or the ids are not i32.
    """
    return emit(EMBEDDING, [weight, ids])[0]
