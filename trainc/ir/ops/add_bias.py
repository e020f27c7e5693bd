"""add_bias: one vector added to every row.

Shapes: T rows in all, N elements of a row.
"""

from collections.abc import Sequence
from math import prod

from trainc.ir.builder import emit
from trainc.ir.ops.expect import expect_dtype, expect_float, expect_rank_at_least, expect_shape
from trainc.ir.primitives import map_, reduce_sum, reshape
from trainc.ir.registry import Call, OpDef, register
from trainc.ir.tensor import Aval, Tensor


def _infer(x: Aval, bias: Aval) -> list[Aval]:
    expect_float("x", x)
    expect_rank_at_least("x", x, 1, "(..., N)")
    expect_dtype("bias", bias, x.dtype)
    expect_shape("bias", bias, x.shape[-1:])
    return [x]


def _decompose(x: Tensor, bias_N: Tensor) -> Tensor:
    letters = "abcdefgh"[: x.rank]
    return map_(f"{letters},{letters[-1]}->{letters}", lambda e, b: e + b, x, bias_N)


def _backward(call: Call, d_results: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    (d_out,) = d_results
    assert d_out is not None
    return d_out, emit(ADD_BIAS_GRAD, [d_out])[0] if call.needs[1] else None


ADD_BIAS = register(
    OpDef(
        "add_bias",
        ("x", "bias"),
        _infer,
        reference=lambda x, bias: x + bias,
        decompose=_decompose,
        backward=_backward,
    )
)


def _infer_grad(d_out: Aval) -> list[Aval]:
    return [Aval(d_out.shape[-1:], d_out.dtype)]


def _decompose_grad(d_out: Tensor) -> Tensor:
    return reduce_sum("tn->n", reshape(d_out, (prod(d_out.shape[:-1]), d_out.shape[-1])))


ADD_BIAS_GRAD = register(OpDef("add_bias_grad", ("d_out",), _infer_grad, decompose=_decompose_grad))


def add_bias(x: Tensor, bias: Tensor) -> Tensor:
    """Return x + bias, the bias added to every row (spec section 9).

    Args:
        x: Shape (..., N), float.
        bias: Shape (N,), the dtype of x.

    Returns:
        The shape of x.

    Raises:
        ShapeError: The bias does not have the length of a row.
        DtypeError: The operands are not floats of one dtype.
    """
    return emit(ADD_BIAS, [x, bias])[0]
