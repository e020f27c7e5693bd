"""part-reductions: sums, maxima and products share their dispatches with nothing.

Fused with what reads it, or with a producer that has another reader, a reduction becomes a dispatch that the compiler
refuses, never finishes, or unrolls until drivers take minutes over it. Each GPU backend has such cases: products of two
results (SPIR-V), softmaxes (CUDA), anything without subgroup operations (docs/iree-notes.md). Alone, all of them are
small and right. The price is that what elementwise functions read and give is stored.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from trainc.ir.primitives import barrier
from trainc.ir.program import Program
from trainc.ir.tensor import Tensor
from trainc.passes.rewrite import rewrite_ops


@dataclass(frozen=True)
class PartReductions:
    """Put a barrier before and after each reduction, and after each product."""

    name: ClassVar[str] = "part-reductions"

    def run(self, program: Program) -> None:
        """Rewrite the program in place."""
        rewrite_ops(program, {"reduce": _part_reduction, "matmul": _part_product})


def _part_reduction(op: Any) -> list[Any]:
    operand = barrier(Tensor(op.operands[0])).value
    reduction = op.operation.clone()
    reduction.operation.operands[0] = operand
    return [barrier(Tensor(reduction.results[0])).value]


def _part_product(op: Any) -> list[Any]:
    return [barrier(Tensor(op.operation.clone().results[0])).value]
