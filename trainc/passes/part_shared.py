"""part-shared: what several readers need is stored before any of them computes.

Otherwise it becomes one dispatch with a reader that is fused with it, and that dispatch has two results. On a product
of two results the compiler runs for ever for SPIR-V, at a softmax of two results it gives up for CUDA, and code without
subgroup operations for a reduction that also stores what it reduces is unrolled until drivers take minutes over it.
"""

from dataclasses import dataclass
from typing import ClassVar

from trainc.ir.mlir import entry_block, functions, scope
from trainc.ir.program import Program
from trainc.ir.registry import DIALECT
from trainc.passes.rewrite import insert_barrier, is_shared


@dataclass(frozen=True)
class PartShared:
    """Put a barrier after each result that is read more than once.

    Attributes:
        ops: Names of the ops whose results get one.
    """

    name: ClassVar[str] = "part-shared"
    ops: tuple[str, ...] = ("matmul",)

    def run(self, program: Program) -> None:
        """Rewrite the program in place."""
        names = {DIALECT + name for name in self.ops}
        with scope():
            for function in functions(program.module):
                for op in [item.operation for item in entry_block(function).operations]:
                    for value in op.results if op.name in names else ():
                        if is_shared(value):
                            insert_barrier(value)
