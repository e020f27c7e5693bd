"""part-reductions: a reduction shares its dispatch with nothing.

Fused with what reads it, or with a producer that the compiler finds a second reader for, it becomes a dispatch that the
compiler refuses or never finishes: without subgroup operations almost always, with them for softmaxes (CUDA) and for
sums over transposed elements (SPIR-V).
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from trainc.ir.primitives import barrier
from trainc.ir.program import Program
from trainc.ir.tensor import Tensor
from trainc.passes.rewrite import rewrite_ops


@dataclass(frozen=True)
class PartReductions:
    """Put a barrier before and after each reduction."""

    name: ClassVar[str] = "part-reductions"

    def run(self, program: Program) -> None:
        """Rewrite the program in place."""
        rewrite_ops(program, {"reduce": _part})


def _part(op: Any) -> list[Any]:
    operand = barrier(Tensor(op.operands[0])).value
    reduction = op.operation.clone()
    reduction.operation.operands[0] = operand
    return [barrier(Tensor(reduction.results[0])).value]
