"""lower-gather: gather, scatter_add and put_rows become an extracting generic, IREE's scatter and an insertion."""

from dataclasses import dataclass
from typing import Any, ClassVar

from trainc.ir.mlir import DYNAMIC, arith, linalg, mlir, shape_of, tensor, tensor_type
from trainc.ir.program import Program
from trainc.passes.linalg_build import affine_maps, compute_barrier, empty, filled, iterators
from trainc.passes.rewrite import rewrite_ops

_LETTERS = "abcdefghijkl"


@dataclass(frozen=True)
class LowerGather:
    """Lower row reads by index, sums into rows and rows written at an index."""

    name: ClassVar[str] = "lower-gather"

    def run(self, program: Program) -> None:
        """Rewrite the program in place."""
        rewrite_ops(program, {"gather": _gather, "scatter_add": _scatter_add, "put_rows": _put_rows})


def _gather(op: Any) -> list[Any]:
    table, ids = op.operands
    axis = op.attributes["axis"].value
    type_ = op.results[0].type
    loops = _LETTERS[: len(mlir.RankedTensorType(type_).shape)]
    ids_rank = len(shape_of(ids))
    term = loops[axis : axis + ids_rank]
    generic = linalg.GenericOp(
        [type_], [ids], [empty(type_, op.operands)], affine_maps([term, loops], loops), iterators(len(loops), 0)
    )
    element = mlir.RankedTensorType(type_).element_type
    id_type = mlir.RankedTensorType(ids.type).element_type
    block = generic.regions[0].blocks.append(id_type, element, arg_locs=[op.location] * 2)
    with mlir.InsertionPoint(block):
        row = arith.index_cast(mlir.IndexType.get(), block.arguments[0])
        before = [linalg.IndexOp(dim).result for dim in range(axis)]
        after = [linalg.IndexOp(dim).result for dim in range(axis + ids_rank, len(loops))]
        linalg.YieldOp([tensor.extract(table, [*before, row, *after])])
    return [generic.results[0]]


def _scatter_add(op: Any) -> list[Any]:
    # A producer fused into the scatter would be kept on the stack whole, and the program refused.
    updates, ids = compute_barrier(op.operands[0]), op.operands[1]
    type_ = op.results[0].type
    element = mlir.RankedTensorType(type_).element_type
    column_type = tensor_type((shape_of(ids)[0], 1), "i32")
    dynamic = [tensor.dim(ids, arith.constant(mlir.IndexType.get(), 0))] if shape_of(ids) == (DYNAMIC,) else []
    indices = tensor.expand_shape(column_type, ids, [[0, 1]], dynamic, list(mlir.RankedTensorType(column_type).shape))
    scatter = mlir.Operation.create(
        "iree_linalg_ext.scatter",
        results=[type_],
        operands=[updates, indices, filled(type_, 0.0, op.operands)],
        attributes={
            "dimension_map": mlir.DenseI64ArrayAttr.get([0]),
            "unique_indices": mlir.BoolAttr.get(False),
        },
        regions=1,
    )
    block = scatter.regions[0].blocks.append(element, element, arg_locs=[op.location] * 2)
    with mlir.InsertionPoint(block):
        total = arith.addf(block.arguments[1], block.arguments[0])
        mlir.Operation.create("iree_linalg_ext.yield", operands=[total])
    return [scatter.results[0]]


def _put_rows(op: Any) -> list[Any]:
    x, rows, start = op.operands
    axis, sizes = op.attributes["axis"].value, shape_of(rows)
    first = arith.index_cast(mlir.IndexType.get(), tensor.extract(start, []))
    zeros = [0] * len(sizes)
    offsets = [*zeros[:axis], mlir.ShapedType.get_dynamic_stride_or_offset(), *zeros[axis + 1 :]]
    return [tensor.insert_slice(rows, x, [first], [], [], offsets, list(sizes), [1] * len(sizes))]
