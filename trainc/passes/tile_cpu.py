"""tile-cpu: every product gets the tile sizes that were measured to be fast on CPUs."""

from dataclasses import dataclass
from typing import Any, ClassVar

from trainc.ir.mlir import entry_block, functions, mlir, scope, shape_of
from trainc.ir.program import Program
from trainc.passes.cpu_tiles import Tiles, contraction_tiles, panel_tiles


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
    if len(columns) != 1 or not right[-1] == out[-1] == columns[0]:
        return
    tiles = _tiles(sizes, batch, rows, columns[0], k, lhs_transposed=left.index(rows[-1]) > left.index(k))
    if tiles is not None:
        order = [*batch, *rows, columns[0], k]
        op.attributes["compilation_info"] = mlir.Attribute.parse(tiles.in_loop_order(order).attribute())


def _tiles(
    sizes: dict[int, int], batch: list[int], rows: list[int], n: int, k: int, *, lhs_transposed: bool
) -> Tiles | None:
    if len(rows) == 1:
        outer = tuple(sizes[b] for b in batch)
        return contraction_tiles(outer, sizes[rows[0]], sizes[n], sizes[k], lhs_transposed=lhs_transposed)
    if len(rows) == 2 and not batch and lhs_transposed:
        return panel_tiles(sizes[rows[1]], sizes[n])
    return None


def _positions(attribute: Any) -> list[int]:
    return [mlir.AffineDimExpr(result).position for result in attribute.value.results]
