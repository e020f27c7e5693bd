"""lower-shape: reshape, slice, pad, concat and constants become tensor and arith ops."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from trainc.ir.mlir import DYNAMIC, arith, attributes_of, dtype_of, mlir, shape_of, tensor, tensor_type
from trainc.ir.program import Program
from trainc.passes.linalg_build import dense, empty
from trainc.passes.rewrite import rewrite_ops


@dataclass(frozen=True)
class LowerShape:
    """Lower the ops that move elements without computing, and the constants."""

    name: ClassVar[str] = "lower-shape"

    def run(self, program: Program) -> None:
        """Rewrite the program in place."""
        rewrite_ops(
            program,
            {
                "reshape": _reshape,
                "slice": _slice,
                "pad": _pad,
                "concat": _concat,
                "constant": _constant,
                "fill": _fill,
            },
        )


def _reshape(op: Any) -> list[Any]:
    source, target = shape_of(op.operands[0]), shape_of(op.results[0])
    groups = common_groups(source, target)
    value = op.operands[0]
    middle = [int(np.prod([source[i] for i in sources])) for sources, _ in groups]
    if len(middle) < len(source):
        type_ = tensor_type(middle, dtype_of(value))
        value = tensor.collapse_shape(type_, value, [list(sources) for sources, _ in groups])
    if len(middle) < len(target):
        groups_out = [list(targets) for _, targets in groups]
        sizes = [
            tensor.dim(value, arith.constant(mlir.IndexType.get(), i)) for i, n in enumerate(middle) if n == DYNAMIC
        ]
        result = op.results[0].type
        value = tensor.expand_shape(result, value, groups_out, sizes, list(mlir.RankedTensorType(result).shape))
    return [value]


def common_groups(source: Sequence[int], target: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Split two shapes of equal size into the finest runs of dimensions with equal products.

    A dynamic dimension is a run of its own: it stays as it is.
    """
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(source) and j < len(target):
        left, right = [i], [j]
        a, b = source[i], target[j]
        while a != b:
            if a < b:
                i += 1
                left.append(i)
                a *= source[i]
            else:
                j += 1
                right.append(j)
                b *= target[j]
        groups.append((left, right))
        i, j = i + 1, j + 1
    if groups:  # trailing unit dimensions join the last run
        groups[-1][0].extend(range(i, len(source)))
        groups[-1][1].extend(range(j, len(target)))
    return groups


def _slice(op: Any) -> list[Any]:
    given = attributes_of(op)
    return [_extract(op.operands[0], given["starts"], given["sizes"], given["strides"])]


def _extract(value: Any, starts: Sequence[int], sizes: Sequence[int], strides: Sequence[int]) -> Any:
    element = mlir.RankedTensorType(value.type).element_type
    type_ = mlir.RankedTensorType.get(list(sizes), element)
    return tensor.extract_slice(type_, value, [], [], [], list(starts), list(sizes), list(strides))


def _insert(value: Any, into: Any, starts: Sequence[int]) -> Any:
    sizes = list(shape_of(value))
    return tensor.insert_slice(value, into, [], [], [], list(starts), sizes, [1] * len(sizes))


def _pad(op: Any) -> list[Any]:
    type_ = op.results[0].type
    element = mlir.RankedTensorType(type_).element_type
    given = attributes_of(op)
    pad = tensor.PadOp(type_, op.operands[0], [], [], list(given["low"]), list(given["high"]))
    index = mlir.IndexType.get()
    rank = len(given["low"])
    block = pad.regions[0].blocks.append(*[index] * rank, arg_locs=[op.location] * rank)
    with mlir.InsertionPoint(block):
        zero = arith.constant(element, 0.0 if str(element)[0] in "fb" else 0)
        tensor.YieldOp(zero)
    return [pad.result]


def _concat(op: Any) -> list[Any]:
    axis = op.attributes["axis"].value
    value = empty(op.results[0].type, op.operands)
    start = 0
    for part in op.operands:
        starts = [start if i == axis else 0 for i in range(len(shape_of(part)))]
        value = _insert(part, value, starts)
        start += shape_of(part)[axis]
    return [value]


def _constant(op: Any) -> list[Any]:
    return [dense(op.results[0].type, attributes_of(op)["value"])]


def _fill(op: Any) -> list[Any]:
    type_ = op.results[0].type
    element = mlir.RankedTensorType(type_).element_type
    value = op.attributes["value"].value
    scalar = mlir.FloatAttr.get(element, value) if str(element)[0] == "f" else mlir.IntegerAttr.get(element, int(value))
    return [arith.ConstantOp(type_, mlir.DenseElementsAttr.get_splat(type_, scalar)).result]
