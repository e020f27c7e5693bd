"""matmul: a sum of products of two operands in index notation, on top of a start value if one is given."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.errors import DtypeError, ShapeError
from trainc.ir.builder import emit
from trainc.ir.registry import OpDef, register
from trainc.ir.spec import Spec, index_sizes, parse_spec
from trainc.ir.tensor import Aval, Tensor


def _infer(a: Aval, b: Aval, *start: Aval, spec: str) -> list[Aval]:
    if a.dtype != b.dtype:
        raise DtypeError(f"expected operands of one dtype, got {a.dtype} and {b.dtype}")
    parsed = parse_spec(spec)
    both = set(parsed.operands[0]) & set(parsed.operands[-1])
    if not parsed.reduced or not set(parsed.reduced) <= both:
        raise ShapeError(f"expected summed indices to be in both operands of {spec!r}")
    sizes = index_sizes(spec, [a.shape, b.shape])
    result = Aval(tuple(sizes[letter] for letter in parsed.output), a.dtype)
    if len(start) > 1 or any(value != result for value in start):
        raise ShapeError(f"expected one start value {result} or none, got {', '.join(map(str, start))}")
    return [result]


def _reference(a: npt.NDArray[Any], b: npt.NDArray[Any], *start: npt.NDArray[Any], spec: str) -> npt.NDArray[Any]:
    return np.asarray(sum(start, _contracted(parse_spec(spec), a, b)))


def _contracted(spec: Spec, a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Contract by one matrix product for each value of the letters that all three terms have.

    `np.einsum` takes such a batch element by element, which is many times slower.
    """
    left, right = spec.operands
    batch = [letter for letter in spec.output if letter in left and letter in right]
    rows, columns = ([c for c in spec.output if c in term and c not in batch] for term in (left, right))
    sizes = dict(zip(left + right, a.shape + b.shape, strict=True))

    def matrices(x: npt.NDArray[Any], term: str, *groups: Sequence[str]) -> npt.NDArray[Any]:
        moved = x.transpose([term.index(letter) for group in groups for letter in group])
        return moved.reshape([math.prod(sizes[letter] for letter in group) for group in groups])

    product: npt.NDArray[Any] = matrices(a, left, batch, rows, spec.reduced) @ matrices(
        b, right, batch, spec.reduced, columns
    )
    order = [*batch, *rows, *columns]
    return product.reshape([sizes[c] for c in order]).transpose([order.index(c) for c in spec.output])


MATMUL = register(OpDef("matmul", ("a", "b", "start*"), _infer, attributes=("spec",), reference=_reference))


def matmul(spec: str, a: Tensor, b: Tensor, start: Tensor | None = None) -> Tensor:
    """Return the contraction of two tensors, accumulated in their dtype.

    Args:
        spec: For example "tk,kn->tn" or "xik,xkj->xij".
        a: Left operand.
        b: Right operand.
        start: What the products are added to, in the order of the summed index; None is zero. A long sum that is
            continued this way piece by piece has the bits of the sum in one piece.
    """
    return emit(MATMUL, [a, b] if start is None else [a, b, start], spec=spec)[0]
