"""part-reductions: no reader of a reduction shares its dispatch.

Code without subgroup operations reduces through workgroup memory alone. There the compiler refuses, or works for ever
on, a reduction that is fused with what reads it; for CUDA it gives up on some with subgroup operations too.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from trainc.ir.primitives import barrier
from trainc.ir.program import Program
from trainc.ir.tensor import Tensor
from trainc.passes.rewrite import rewrite_ops


@dataclass(frozen=True)
class PartReductions:
    """Put a barrier after each reduction."""

    name: ClassVar[str] = "part-reductions"

    def run(self, program: Program) -> None:
        """Rewrite the program in place."""
        rewrite_ops(program, {"reduce": _with_barrier})


def _with_barrier(op: Any) -> list[Any]:
    return [barrier(Tensor(op.operation.clone().results[0])).value]
