"""sgd, sgd_momentum: one step of SGD of a flat parameter buffer, without and with a momentum buffer.

Shapes: N elements. The scalar coefficients of a step are computed on the host (trainc.core.sgd); those that answer a
question are 1 or 0.
"""

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from trainc.core.sgd import MOMENTUM_COEFFICIENT_NAMES, PLAIN_COEFFICIENT_NAMES
from trainc.ir import scalar
from trainc.ir.builder import emit
from trainc.ir.ops.coefficients import expect_step, in_order
from trainc.ir.primitives import map_, map_many
from trainc.ir.registry import OpDef, register
from trainc.ir.scalar import Scalar
from trainc.ir.tensor import Aval, Tensor

Array = npt.NDArray[Any]


def _infer_plain(p: Aval, g: Aval, *coefficients: Aval) -> list[Aval]:
    expect_step({"p": p, "g": g}, PLAIN_COEFFICIENT_NAMES, coefficients)
    return [p]


def _infer_momentum(p: Aval, b: Aval, g: Aval, *coefficients: Aval) -> list[Aval]:
    expect_step({"p": p, "b": b, "g": g}, MOMENTUM_COEFFICIENT_NAMES, coefficients)
    return [p, b]


def _reference_plain(p_N: Array, g_N: Array, *coefficients: Array) -> Array:
    k = dict(zip(PLAIN_COEFFICIENT_NAMES, coefficients, strict=True))
    stepped_N: Array = p_N - k["lr"] * (k["sign"] * g_N + k["decay"] * p_N)
    return stepped_N


def _reference_momentum(p_N: Array, b_N: Array, g_N: Array, *coefficients: Array) -> tuple[Array, Array]:
    k = dict(zip(MOMENTUM_COEFFICIENT_NAMES, coefficients, strict=True))
    decayed_N = k["sign"] * g_N + k["decay"] * p_N
    buffer_N = decayed_N if k["first"] else k["momentum"] * b_N + k["keep"] * decayed_N
    direction_N = decayed_N + k["momentum"] * buffer_N if k["nesterov"] else buffer_N
    return p_N - k["lr"] * direction_N, buffer_N


def _decayed(p: Scalar, g: Scalar, k: Mapping[str, Scalar]) -> Scalar:
    signed = g * k["sign"]
    return scalar.select(scalar.equal(k["decay"], 0.0), signed, scalar.fma(k["decay"], p, signed))


def _decompose_plain(p: Tensor, g: Tensor, *coefficients: Tensor) -> Tensor:
    def element(p: Scalar, g: Scalar, *scalars: Scalar) -> Scalar:
        k = dict(zip(PLAIN_COEFFICIENT_NAMES, scalars, strict=True))
        return scalar.fma(-k["lr"], _decayed(p, g, k), p)

    return map_("n,n" + "," * len(coefficients) + "->n", element, p, g, *coefficients)


def _decompose_momentum(p: Tensor, b: Tensor, g: Tensor, *coefficients: Tensor) -> tuple[Tensor, ...]:
    def element(p: Scalar, b: Scalar, g: Scalar, *scalars: Scalar) -> tuple[Scalar, Scalar]:
        k = dict(zip(MOMENTUM_COEFFICIENT_NAMES, scalars, strict=True))
        decayed = _decayed(p, g, k)
        mixed = scalar.fma(k["keep"], decayed, k["momentum"] * b)
        buffer = scalar.select(scalar.equal(k["first"], 0.0), mixed, decayed)
        ahead = scalar.fma(k["momentum"], buffer, decayed)
        direction = scalar.select(scalar.equal(k["nesterov"], 0.0), buffer, ahead)
        return scalar.fma(-k["lr"], direction, p), buffer

    return map_many("n,n,n" + "," * len(coefficients) + "->n", element, p, b, g, *coefficients)


SGD = register(
    OpDef("sgd", ("p", "g", "coefficients*"), _infer_plain, reference=_reference_plain, decompose=_decompose_plain)
)
SGD_MOMENTUM = register(
    OpDef(
        "sgd_momentum",
        ("p", "b", "g", "coefficients*"),
        _infer_momentum,
        reference=_reference_momentum,
        decompose=_decompose_momentum,
    )
)


def sgd(p: Tensor, g: Tensor, coefficients: Mapping[str, Tensor]) -> Tensor:
    """Return parameters after one step of SGD without momentum (spec section 8).

    Args:
        p: Parameters (N,), float.
        g: Gradients (N,).
        coefficients: Scalars () of the dtype of p by the names of `trainc.core.sgd.PLAIN_COEFFICIENT_NAMES`.

    Returns:
        The new p (N,).

    Raises:
        ShapeError: The buffers are not of one shape (N,), a coefficient has dimensions, or one is missing or unknown.
        DtypeError: The operands are not floats of one dtype.
    """
    (new_p,) = emit(SGD, [p, g, *in_order("sgd", PLAIN_COEFFICIENT_NAMES, coefficients)])
    return new_p


def sgd_momentum(p: Tensor, b: Tensor, g: Tensor, coefficients: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return parameters and momentum buffer after one step of SGD (spec section 8).

    Args:
        p: Parameters (N,), float.
        b: Momentum buffer (N,); not read in its first step.
        g: Gradients (N,).
        coefficients: Scalars () of the dtype of p by the names of `trainc.core.sgd.MOMENTUM_COEFFICIENT_NAMES`.

    Returns:
        The new (p, b), each (N,).

    Raises:
        ShapeError: The buffers are not of one shape (N,), a coefficient has dimensions, or one is missing or unknown.
        DtypeError: The operands are not floats of one dtype.
    """
    new_p, new_b = emit(SGD_MOMENTUM, [p, b, g, *in_order("sgd_momentum", MOMENTUM_COEFFICIENT_NAMES, coefficients)])
    return new_p, new_b
