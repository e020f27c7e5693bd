"""swiglu: a gated unit, silu(gate) * up."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.ir.builder import emit
from trainc.ir.ops.expect import expect_dtype, expect_float, expect_shape
from trainc.ir.primitives import elementwise, map_many
from trainc.ir.registry import Call, OpDef, register
from trainc.ir.scalar import Scalar, sigmoid
from trainc.ir.tensor import Aval, Tensor

Array = npt.NDArray[Any]


def _infer(gate: Aval, up: Aval) -> list[Aval]:
    expect_float("gate", gate)
    expect_dtype("up", up, gate.dtype)
    expect_shape("up", up, gate.shape)
    return [gate]


def _reference(gate: Array, up: Array) -> Array:
    return gate / (1.0 + np.exp(-gate)) * up


def _backward(call: Call, d_results: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    (d_out,) = d_results
    assert d_out is not None
    return emit(SWIGLU_GRAD, [d_out, *call.operands])


SWIGLU = register(
    OpDef(
        "swiglu",
        ("gate", "up"),
        _infer,
        reference=_reference,
        decompose=lambda gate, up: elementwise(lambda g, u: g * sigmoid(g) * u, gate, up),
        backward=_backward,
    )
)


def _infer_grad(d_out: Aval, gate: Aval, up: Aval) -> list[Aval]:
    expect_shape("gate", gate, d_out.shape)
    expect_shape("up", up, d_out.shape)
    return [gate, up]


def _decompose_grad(d_out: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, ...]:
    def element(d: Scalar, g: Scalar, u: Scalar) -> tuple[Scalar, Scalar]:
        s = sigmoid(g)
        return d * u * s * (1.0 + g * (1.0 - s)), d * (g * s)

    letters = "abcdefgh"[: d_out.rank]
    return map_many(f"{letters},{letters},{letters}->{letters}", element, d_out, gate, up)


SWIGLU_GRAD = register(OpDef("swiglu_grad", ("d_out", "gate", "up"), _infer_grad, decompose=_decompose_grad))


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """Return silu(gate) * up with silu(s) = s / (1 + exp(-s)) (spec section 3).

    Args:
        gate: Any shape, float.
        up: The shape and dtype of gate.

    Returns:
        The shape of gate.

    Raises:
        ShapeError: The shapes differ.
        DtypeError: The operands are not floats of one dtype.
    """
    return emit(SWIGLU, [gate, up])[0]
