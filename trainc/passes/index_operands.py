"""index-operands: element functions read positions from small constants instead of asking for their own.

A map that masks by position, fused with a product, makes the SPIR-V backend keep vectors of `index` in workgroup
memory, which it then cannot translate. Positions that come in as int32 vectors, one a dimension, are data like any
other and fuse freely.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from trainc.ir.mlir import DYNAMIC, mlir, shape_of, to_attribute
from trainc.ir.primitives import constant
from trainc.ir.program import Program
from trainc.ir.registry import DIALECT
from trainc.ir.spec import parse_spec
from trainc.passes.rewrite import rewrite_ops

LONGEST = 65536
"""Positions along longer dimensions stay computed: those are flat counts, which no mask is made of."""


@dataclass(frozen=True)
class IndexOperands:
    """Pass positions along short dimensions to maps as operands."""

    name: ClassVar[str] = "index-operands"

    def run(self, program: Program) -> None:
        """Rewrite the program in place."""
        rewrite_ops(program, {"map": _pass_positions})


def _pass_positions(op: Any) -> list[Any]:
    shape, spec = shape_of(op.results[0]), parse_spec(op.attributes["spec"].value)
    block = op.regions[0].blocks[0]
    asked = _positions_asked(block, shape)
    dims = sorted(set(asked.values()))
    operands = [*op.operands, *(constant(np.arange(shape[dim]), "i32").value for dim in dims)]
    terms = [*spec.operands, *(spec.output[dim] for dim in dims)]
    rewritten = mlir.Operation.create(
        DIALECT + "map",
        results=[result.type for result in op.results],
        operands=operands,
        attributes={
            "spec": to_attribute(",".join(term or "." for term in terms) + "->" + spec.output),
            "sizes": op.attributes["sizes"],
        },
        regions=1,
    )
    block.append_to(rewritten.regions[0])
    i32 = mlir.IntegerType.get_signless(32)
    passed = {dim: block.add_argument(i32, op.location) for dim in dims}
    for position, dim in asked.items():
        position.replace_all_uses_with(passed[dim])
        position.owner.erase()
    return list(rewritten.results)


def _positions_asked(block: Any, shape: tuple[int, ...]) -> dict[Any, int]:
    """Return the positions that a region asks for along dimensions of a known, short size."""
    asked = {}
    for item in block.operations:
        if item.operation.name == DIALECT + "index":
            dim = item.operation.attributes["dim"].value
            if shape[dim] != DYNAMIC and shape[dim] <= LONGEST:
                asked[item.operation.results[0]] = dim
    return asked
