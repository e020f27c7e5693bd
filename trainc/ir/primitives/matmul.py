"""matmul: a sum of products of two operands in index notation."""

from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.errors import DtypeError, ShapeError
from trainc.ir.builder import emit
from trainc.ir.registry import OpDef, register
from trainc.ir.spec import index_sizes, parse_spec
from trainc.ir.tensor import Aval, Tensor


def _infer(a: Aval, b: Aval, *, spec: str) -> list[Aval]:
    if a.dtype != b.dtype:
        raise DtypeError(f"expected operands of one dtype, got {a.dtype} and {b.dtype}")
    parsed = parse_spec(spec)
    both = set(parsed.operands[0]) & set(parsed.operands[-1])
    if not parsed.reduced or not set(parsed.reduced) <= both:
        raise ShapeError(f"expected summed indices to be in both operands of {spec!r}")
    sizes = index_sizes(spec, [a.shape, b.shape])
    return [Aval(tuple(sizes[letter] for letter in parsed.output), a.dtype)]


def _reference(a: npt.NDArray[Any], b: npt.NDArray[Any], *, spec: str) -> npt.NDArray[Any]:
    return np.asarray(np.einsum(spec, a, b, optimize=True))


MATMUL = register(OpDef("matmul", ("a", "b"), _infer, attributes=("spec",), reference=_reference))


def matmul(spec: str, a: Tensor, b: Tensor) -> Tensor:
    """Return the contraction of two tensors, accumulated in their dtype.

    Args:
        spec: For example "tk,kn->tn" or "xik,xkj->xij".
        a: Left operand.
        b: Right operand.
    """
    return emit(MATMUL, [a, b], spec=spec)[0]
