"""lower-barrier: train.barrier becomes IREE's compute barrier."""

from dataclasses import dataclass
from typing import Any, ClassVar

from trainc.ir.program import Program
from trainc.passes.linalg_build import compute_barrier
from trainc.passes.rewrite import rewrite_ops


@dataclass(frozen=True)
class LowerBarrier:
    """Use the barrier that only stops fusion; an optimization barrier would split the stream and page-fault."""

    name: ClassVar[str] = "lower-barrier"

    def run(self, program: Program) -> None:
        """Rewrite the program in place."""
        rewrite_ops(program, {"barrier": _lower})


def _lower(op: Any) -> list[Any]:
    return [compute_barrier(op.operands[0])]
