"""dce: ops whose results nobody reads go away (all train ops are pure)."""

from dataclasses import dataclass
from typing import ClassVar

from trainc.ir.mlir import entry_block, functions, scope
from trainc.ir.program import Program
from trainc.ir.registry import is_train_op


@dataclass(frozen=True)
class DeadCodeElimination:
    """Erase train ops without uses, last first."""

    name: ClassVar[str] = "dce"

    def run(self, program: Program) -> None:
        """Rewrite the program in place."""
        with scope():
            for function in functions(program.module):
                for item in reversed(list(entry_block(function).operations)):
                    op = item.operation
                    if is_train_op(op) and not any(list(result.uses) for result in op.results):
                        op.erase()
