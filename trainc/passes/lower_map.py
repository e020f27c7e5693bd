"""lower-map: train.map becomes linalg.generic."""

from dataclasses import dataclass
from typing import Any, ClassVar

from trainc.ir.mlir import arith, linalg, mlir
from trainc.ir.program import Program
from trainc.ir.spec import parse_spec
from trainc.passes.linalg_build import affine_maps, empty, iterators
from trainc.passes.rewrite import rewrite_ops


@dataclass(frozen=True)
class LowerMap:
    """Move a map's region into a parallel linalg.generic."""

    name: ClassVar[str] = "lower-map"

    def run(self, program: Program) -> None:
        """Rewrite the program in place."""
        rewrite_ops(program, {"map": _lower})


def _lower(op: Any) -> list[Any]:
    spec = parse_spec(op.attributes["spec"].value)
    results = [result.type for result in op.results]
    generic = linalg.GenericOp(
        results,
        list(op.operands),
        [empty(type_, op.operands) for type_ in results],
        affine_maps([*spec.operands, *[spec.output] * len(results)], spec.output),
        iterators(len(spec.output), 0),
    )
    block = op.regions[0].blocks[0]
    block.append_to(generic.regions[0])
    for type_ in results:
        block.add_argument(mlir.RankedTensorType(type_).element_type, op.location)
    for item in list(block.operations):
        if item.operation.name == "train.index":
            _lower_index(item.operation)
        elif item.operation.name == "train.yield":
            with mlir.InsertionPoint(item.operation):
                linalg.YieldOp(list(item.operation.operands))
            item.operation.erase()
    return list(generic.results)


def _lower_index(op: Any) -> None:
    with mlir.InsertionPoint(op):
        position = linalg.IndexOp(op.attributes["dim"].value).result
        op.results[0].replace_all_uses_with(arith.index_cast(op.results[0].type, position))
    op.erase()
