"""decompose: layer ops become primitive ops."""

from dataclasses import dataclass
from typing import ClassVar

from trainc.ir.decompose import decompose_function
from trainc.ir.mlir import functions, scope
from trainc.ir.program import Program


@dataclass(frozen=True)
class Decompose:
    """Replace every layer op by its decomposition until only primitives are left."""

    name: ClassVar[str] = "decompose"

    def run(self, program: Program) -> None:
        """Rewrite the program in place."""
        with scope():
            for function in functions(program.module):
                decompose_function(function)
