"""add-rows-by-product: rows that are added by index become a product with a matrix of zeros and ones.

Two rows may have one index, so the compiler gives a scatter to a single thread of a GPU, which takes rows times columns
steps, and more of them than Mesa's software device does (docs/iree-notes.md). The product has as many terms for each
row of the result, but runs like any other: for an embedding it costs what the weight gradient of a head over the same
vocabulary does. A row that is not finite makes its columns not a number.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from trainc.core.errors import UnsupportedError
from trainc.ir.mlir import DYNAMIC
from trainc.ir.primitives import barrier, fill, map_, matmul, slice_axis
from trainc.ir.program import Program
from trainc.ir.scalar import constant, equal, index, select
from trainc.ir.tensor import Tensor
from trainc.passes.rewrite import rewrite_ops

LARGEST = 2**24
"""Elements of the matrix, which is stored, 64 MB of float32; what is larger is made in pieces."""


@dataclass(frozen=True)
class AddRowsByProduct:
    """Multiply by a matrix that has a one where a row goes."""

    name: ClassVar[str] = "add-rows-by-product"

    def run(self, program: Program) -> None:
        """Rewrite the program in place.

        Raises:
            UnsupportedError: The number of rows that are added is not known before the call.
        """
        rewrite_ops(program, {"scatter_add": _scatter_add})


def _scatter_add(op: Any) -> list[Any]:
    updates, ids = (Tensor(operand) for operand in op.operands)
    rows, (count, columns) = op.attributes["rows"].value, updates.shape
    if count == DYNAMIC:
        raise UnsupportedError("adding as many rows as each call chooses cannot be compiled for this target")
    step = max(1, LARGEST // rows)
    positions = barrier(map_("->r", lambda: index(0), sizes={"r": rows}))
    total = fill(0.0, (rows, columns), updates.dtype)
    for first in range(0, count, step):
        piece, to = (slice_axis(x, 0, first, min(step, count - first)) for x in (updates, ids))
        total = matmul("nr,nc->rc", _goes(to, positions, updates.dtype), piece, total)
    return [total.value]


def _goes(ids: Tensor, positions: Tensor, dtype: str) -> Tensor:
    def function(to: Any, row: Any) -> Any:
        return select(equal(to, row), constant(1.0, dtype), 0.0)

    return map_("n,r->nr", function, ids, positions)
