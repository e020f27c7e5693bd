"""lower-reduce: train.reduce becomes a reducing linalg.generic."""

from dataclasses import dataclass
from typing import Any, ClassVar

from trainc.ir.mlir import arith, linalg, mlir
from trainc.ir.program import Program
from trainc.ir.spec import parse_spec
from trainc.passes.linalg_build import affine_maps, filled, iterators
from trainc.passes.rewrite import rewrite_ops

_START = {"sum": 0.0, "max": float("-inf")}


@dataclass(frozen=True)
class LowerReduce:
    """Write a sum or maximum as a generic with its start value filled in."""

    name: ClassVar[str] = "lower-reduce"

    def run(self, program: Program) -> None:
        """Rewrite the program in place."""
        rewrite_ops(program, {"reduce": _lower})


def _lower(op: Any) -> list[Any]:
    spec = parse_spec(op.attributes["spec"].value)
    kind = op.attributes["kind"].value
    type_ = op.results[0].type
    generic = linalg.GenericOp(
        [type_],
        [op.operands[0]],
        [filled(type_, _START[kind], op.operands)],
        affine_maps([spec.operands[0], spec.output], spec.output + spec.reduced),
        iterators(len(spec.output), len(spec.reduced)),
    )
    element = mlir.RankedTensorType(type_).element_type
    block = generic.regions[0].blocks.append(element, element, arg_locs=[op.location] * 2)
    with mlir.InsertionPoint(block):
        combine = arith.addf if kind == "sum" else arith.maximumf
        linalg.YieldOp([combine(block.arguments[1], block.arguments[0])])
    return [generic.results[0]]
