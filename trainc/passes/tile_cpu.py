"""tile-cpu: every product gets the tile sizes that were measured to be fast on CPUs."""

from dataclasses import dataclass
from typing import Any, ClassVar

from trainc.ir.mlir import entry_block, functions, mlir, scope, shape_of
from trainc.ir.program import Program
from trainc.passes.cpu_tiles import contraction_tiles


@dataclass(frozen=True)
class TileCpu:
    """Attach lowering configurations to contractions (they are per target: a CPU one fails to build elsewhere)."""

    name: ClassVar[str] = "tile-cpu"

    def run(self, program: Program) -> None:
        """Rewrite the program in place."""
        with scope():
            for function in functions(program.module):
                for item in entry_block(function).operations:
                    if is_contraction(item.operation):
                        _attach(item.operation)


def is_contraction(op: Any) -> bool:
    """Return whether an op multiplies and accumulates over one innermost loop."""
    if op.name != "linalg.generic" or len(op.operands) != 3:
        return False
    body = [inner.operation.name for inner in op.regions[0].blocks[0].operations]
    kinds = [str(kind) for kind in op.attributes["iterator_types"]]
    return body == ["arith.mulf", "arith.addf", "linalg.yield"] and sum("reduction" in kind for kind in kinds) == 1


def _attach(op: Any) -> None:
    left, right, out = (_positions(attribute) for attribute in op.attributes["indexing_maps"])
    k = len(op.attributes["iterator_types"]) - 1
    sizes = dict(zip((*out, *left), (*shape_of(op.results[0]), *shape_of(op.operands[0])), strict=True))
    batch = [loop for loop in out if loop in left and loop in right]
    rows = [loop for loop in out if loop not in right]
    columns = [loop for loop in out if loop not in left]
    if len(rows) != 1 or len(columns) != 1 or not right[-1] == out[-1] == columns[0]:
        return
    m, n = rows[0], columns[0]
    tiles = contraction_tiles(
        tuple(sizes[b] for b in batch), sizes[m], sizes[n], sizes[k], lhs_transposed=left.index(m) > left.index(k)
    )
    if tiles is not None:
        op.attributes["compilation_info"] = mlir.Attribute.parse(tiles.in_loop_order([*batch, m, n, k]).attribute())


def _positions(attribute: Any) -> list[int]:
    return [mlir.AffineDimExpr(result).position for result in attribute.value.results]
