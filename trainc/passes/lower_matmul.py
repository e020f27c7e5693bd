"""lower-matmul: train.matmul becomes a contracting linalg.generic."""

from dataclasses import dataclass
from typing import Any, ClassVar

from trainc.ir.mlir import arith, linalg, mlir
from trainc.ir.program import Program
from trainc.ir.spec import parse_spec
from trainc.passes.linalg_build import affine_maps, filled, iterators
from trainc.passes.rewrite import rewrite_ops


@dataclass(frozen=True)
class LowerMatmul:
    """Write a product as multiply and accumulate, output indices outside, summed indices inside."""

    name: ClassVar[str] = "lower-matmul"

    def run(self, program: Program) -> None:
        """Rewrite the program in place."""
        rewrite_ops(program, {"matmul": _lower})


def _lower(op: Any) -> list[Any]:
    spec = parse_spec(op.attributes["spec"].value)
    type_ = op.results[0].type
    left, right, *start = op.operands
    generic = linalg.GenericOp(
        [type_],
        [left, right],
        start or [filled(type_, 0.0, op.operands)],
        affine_maps([*spec.operands, spec.output], spec.output + spec.reduced),
        iterators(len(spec.output), len(spec.reduced)),
    )
    element = mlir.RankedTensorType(type_).element_type
    block = generic.regions[0].blocks.append(element, element, element, arg_locs=[op.location] * 3)
    with mlir.InsertionPoint(block):
        a, b, accumulator = block.arguments
        linalg.YieldOp([arith.addf(accumulator, arith.mulf(a, b))])
    return [generic.results[0]]
