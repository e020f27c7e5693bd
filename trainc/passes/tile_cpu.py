"""tile-cpu: every product gets the tile sizes that were measured to be fast on CPUs."""

from dataclasses import dataclass
from typing import Any, ClassVar

from trainc.ir.mlir import entry_block, functions, mlir, scope, shape_of
from trainc.ir.program import Program
from trainc.passes.cpu_tiles import WIDEST, contraction_tiles, panel_tiles, vector_tiles


@dataclass(frozen=True)
class TileCpu:
    """Attach lowering configurations to contractions (they are per target: a CPU one fails to build elsewhere).

    Attributes:
        vector_bytes: Width of the CPU's vector registers.
    """

    name: ClassVar[str] = "tile-cpu"
    vector_bytes: int = WIDEST

    def run(self, program: Program) -> None:
        """Rewrite the program in place."""
        with scope():
            for function in functions(program.module):
                for item in entry_block(function).operations:
                    if is_contraction(item.operation):
                        _attach(item.operation, self.vector_bytes)


def is_contraction(op: Any) -> bool:
    """Return whether an op multiplies and accumulates over one innermost loop."""
    if op.name != "linalg.generic" or len(op.operands) != 3:
        return False
    body = [inner.operation.name for inner in op.regions[0].blocks[0].operations]
    kinds = [str(kind) for kind in op.attributes["iterator_types"]]
    return body == ["arith.mulf", "arith.addf", "linalg.yield"] and sum("reduction" in kind for kind in kinds) == 1


def _attach(op: Any, vector_bytes: int) -> None:
    left, right, out = (_positions(attribute) for attribute in op.attributes["indexing_maps"])
    k = len(op.attributes["iterator_types"]) - 1
    sizes = dict(zip((*out, *left), (*shape_of(op.results[0]), *shape_of(op.operands[0])), strict=True))
    batch = [loop for loop in out if loop in left and loop in right]
    rows = [loop for loop in out if loop not in right]
    columns = [loop for loop in out if loop not in left]
    outer = tuple(sizes[b] for b in batch)
    if len(rows) + len(columns) == 1:  # the matrix stands on the side that has the loop
        (n,) = order = rows + columns
        along_rows = (left if rows else right)[-1] == k
        tiles = vector_tiles(outer, sizes[n], sizes[k], along_rows=along_rows)
    elif len(columns) != 1 or not right[-1] == out[-1] == columns[0]:
        return
    elif len(rows) == 1:
        m, n = order = [*rows, *columns]
        transposed = left.index(m) > left.index(k)
        tiles = contraction_tiles(
            outer, sizes[m], sizes[n], sizes[k], lhs_transposed=transposed, vector_bytes=vector_bytes
        )
    elif len(rows) == 2 and not batch and left[-1] == rows[-1]:
        _, width, n = order = [*rows, *columns]
        tiles = panel_tiles(sizes[width], sizes[n])
    else:
        return
    if tiles is not None:
        op.attributes["compilation_info"] = mlir.Attribute.parse(tiles.in_loop_order([*batch, *order, k]).attribute())


def _positions(attribute: Any) -> list[int]:
    return [mlir.AffineDimExpr(result).position for result in attribute.value.results]
