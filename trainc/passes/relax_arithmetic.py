"""relax-arithmetic: what the numeric mode "fast" lets the compiler do with float arithmetic.

Every float operation may be regrouped, fused into multiply-adds, divided by way of a reciprocal, or approximated.
Infinities, NaNs and the sign of zero keep their meaning. An element function that writes its multiply-adds itself has
chosen its roundings (optimizer steps, random draws); it is left as it is.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from trainc.ir.mlir import entry_block, functions, mlir, scope
from trainc.ir.program import Program

_FREEDOMS = "#arith.fastmath<reassoc,arcp,contract,afn>"
_PINNED = "math.fma"
_ARITHMETIC = frozenset(f"arith.{name}" for name in ("addf", "subf", "mulf", "divf", "negf"))
_FUNCTIONS = frozenset(
    f"math.{name}" for name in ("exp", "log", "log1p", "expm1", "sqrt", "rsqrt", "sin", "cos", "tanh")
)


@dataclass(frozen=True)
class RelaxArithmetic:
    """Mark the float operations of every element function as free."""

    name: ClassVar[str] = "relax-arithmetic"

    def run(self, program: Program) -> None:
        """Rewrite the program in place."""
        with scope():
            freedoms = mlir.Attribute.parse(_FREEDOMS)
            for function in functions(program.module):
                for item in entry_block(function).operations:
                    for region in item.operation.regions:
                        _relax(list(region.blocks[0].operations), freedoms)


def _relax(operations: list[Any], freedoms: Any) -> None:
    names = {item.operation.name for item in operations}
    if _PINNED in names:
        return
    for item in operations:
        if item.operation.name in _ARITHMETIC | _FUNCTIONS:
            item.operation.attributes["fastmath"] = freedoms
