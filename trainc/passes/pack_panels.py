"""pack-panels: weight gradients of wide tensors read their left side from panels of a few columns.

A product a^T b walks down the columns of a. Where its rows are long, each step of the walk is in another page and
memory, not arithmetic, sets the pace. One copy of a into panels of PANEL columns, each contiguous, makes the walk a
straight line (docs/performance.md has the figures). The order of the additions stays the same.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from trainc.ir.mlir import shape_of
from trainc.ir.primitives import barrier, map_, matmul, reshape
from trainc.ir.program import Program
from trainc.ir.spec import parse_spec
from trainc.ir.tensor import Tensor
from trainc.passes.rewrite import rewrite_ops

PANEL = 8
"""Columns of a panel: as many rows of the result as `cpu_tiles` holds in registers at once."""

_WIDE = 2048
"""Columns from which on the copy is paid back: rows of two memory pages and more."""

_DEEP = 512
"""Rows below which the walk is short enough for the caches."""


@dataclass(frozen=True)
class PackPanels:
    """Copy the left side of wide products over its rows into panels."""

    name: ClassVar[str] = "pack-panels"

    def run(self, program: Program) -> None:
        """Rewrite the program in place."""
        rewrite_ops(program, {"matmul": _pack})


def _pack(op: Any) -> list[Any]:
    left, right, *start = (Tensor(operand) for operand in op.operands)
    text = op.attributes["spec"].value
    if not _wants_panels(left, right, text):
        return [matmul(text, left, right, *start).value]
    (depth, rows), columns = left.shape, right.shape[1]
    panels, panelled = rows // PANEL, (rows // PANEL, PANEL, columns)
    # Barriers, or the copy would be computed again by each reader.
    apart = map_("kjp->jkp", lambda e: e, reshape(barrier(left), (depth, panels, PANEL)))
    product = matmul("jkp,kn->jpn", barrier(apart), right, *(reshape(s, panelled) for s in start))
    return [reshape(product, shape_of(op.results[0])).value]


def _wants_panels(left: Tensor, right: Tensor, text: str) -> bool:
    spec = parse_spec(text)
    if len(left.shape) != 2 or len(right.shape) != 2:
        return False
    a, b = spec.operands[0], spec.operands[1]
    is_transposed = a[0] == b[0] == spec.reduced and spec.output == a[1] + b[1]
    depth, rows = left.shape
    return is_transposed and rows >= _WIDE and rows % PANEL == 0 and depth >= _DEEP
