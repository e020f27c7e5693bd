"""adamw: one optimizer step of a flat parameter buffer and its two moments.

Shapes: N elements. The scalar coefficients of a step are computed on the host (trainc.core.adamw).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.adamw import COEFFICIENT_NAMES
from trainc.ir import scalar
from trainc.ir.builder import emit
from trainc.ir.ops.coefficients import expect_step, in_order
from trainc.ir.primitives import map_many
from trainc.ir.registry import OpDef, register
from trainc.ir.scalar import Scalar
from trainc.ir.tensor import Aval, Tensor

Array = npt.NDArray[Any]


def _infer(p: Aval, m: Aval, v: Aval, g: Aval, *coefficients: Aval) -> list[Aval]:
    expect_step({"p": p, "m": m, "v": v, "g": g}, COEFFICIENT_NAMES, coefficients)
    return [p, m, v]


def _reference(p_N: Array, m_N: Array, v_N: Array, g_N: Array, *coefficients: Array) -> tuple[Array, Array, Array]:
    k = dict(zip(COEFFICIENT_NAMES, coefficients, strict=True))
    clipped_N = k["clip"] * g_N
    first_N = k["b1"] * m_N + k["c1"] * clipped_N
    second_N = k["b2"] * v_N + k["c2"] * clipped_N**2
    return k["decay"] * p_N - k["step"] * first_N / (np.sqrt(second_N) / k["rb"] + k["eps"]), first_N, second_N


def _decompose(p: Tensor, m: Tensor, v: Tensor, g: Tensor, *coefficients: Tensor) -> tuple[Tensor, ...]:
    def element(p: Scalar, m: Scalar, v: Scalar, g: Scalar, *scalars: Scalar) -> tuple[Scalar, Scalar, Scalar]:
        k = dict(zip(COEFFICIENT_NAMES, scalars, strict=True))
        clipped = g * k["clip"]
        # Each operation below is one rounding of spec section 8.
        first = scalar.fma(k["c1"], clipped, k["b1"] * m)
        second = scalar.fma(k["c2"], clipped * clipped, k["b2"] * v)
        denominator = scalar.sqrt(second) / k["rb"] + k["eps"]
        return scalar.fma(-k["step"], first / denominator, p * k["decay"]), first, second

    return map_many("n,n,n,n" + "," * len(coefficients) + "->n", element, p, m, v, g, *coefficients)


ADAMW = register(
    OpDef("adamw", ("p", "m", "v", "g", "coefficients*"), _infer, reference=_reference, decompose=_decompose)
)


def adamw(
    p: Tensor, m: Tensor, v: Tensor, g: Tensor, coefficients: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return parameters and moments after one AdamW step (spec section 8).

    Args:
        p: Parameters (N,), float.
        m: First moments (N,).
        v: Second moments (N,).
        g: Gradients (N,), before clipping.
        coefficients: Scalars () of the dtype of p by the names of `trainc.core.adamw.COEFFICIENT_NAMES`.

    Returns:
        The new (p, m, v), each (N,).

    Raises:
        ShapeError: The buffers are not of one shape (N,), a coefficient has dimensions, or one is missing or unknown.
        DtypeError: The operands are not floats of one dtype.
    """
    new_p, new_m, new_v = emit(ADAMW, [p, m, v, g, *in_order("adamw", COEFFICIENT_NAMES, coefficients)])
    return new_p, new_m, new_v
