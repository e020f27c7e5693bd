"""reduce: sums or maxima along indices that the output does not have."""

from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.errors import ShapeError
from trainc.ir.builder import emit
from trainc.ir.registry import OpDef, register
from trainc.ir.spec import index_sizes, parse_spec
from trainc.ir.tensor import Aval, Tensor

KINDS = ("sum", "max")


def _infer(x: Aval, *, spec: str, kind: str) -> list[Aval]:
    if kind not in KINDS:
        raise ShapeError(f"expected kind in {KINDS}, got {kind!r}")
    sizes = index_sizes(spec, [x.shape])
    return [Aval(tuple(sizes[letter] for letter in parse_spec(spec).output), x.dtype)]


def _reference(x: npt.NDArray[Any], *, spec: str, kind: str) -> npt.NDArray[Any]:
    parsed = parse_spec(spec)
    term = parsed.operands[0]
    axes = tuple(term.index(letter) for letter in parsed.reduced)
    reduced = x.sum(axis=axes) if kind == "sum" else x.max(axis=axes)
    left = [letter for letter in term if letter in parsed.output]
    return np.transpose(reduced, [left.index(letter) for letter in parsed.output])


REDUCE = register(OpDef("reduce", ("x",), _infer, attributes=("spec", "kind"), reference=_reference))


def reduce_sum(spec: str, x: Tensor) -> Tensor:
    """Sum over the indices missing from the output, for example "bld->bl"."""
    return emit(REDUCE, [x], spec=spec, kind="sum")[0]


def reduce_max(spec: str, x: Tensor) -> Tensor:
    """Take the maximum over the indices missing from the output; NaN if any element is NaN."""
    return emit(REDUCE, [x], spec=spec, kind="max")[0]
