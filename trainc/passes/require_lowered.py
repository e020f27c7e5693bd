"""require-lowered: the last pass; refuses a program that the compiler would crash on."""

from dataclasses import dataclass
from typing import Any, ClassVar

from trainc.core.errors import VerifyError
from trainc.ir.mlir import functions, location_number, mlir, scope
from trainc.ir.program import Program

DIALECTS = ("func", "arith", "math", "linalg", "tensor", "hal", "iree_tensor_ext", "iree_linalg_ext")


@dataclass(frozen=True)
class RequireLowered:
    """Refuse any op outside the dialects that go to iree-compile."""

    name: ClassVar[str] = "require-lowered"

    def run(self, program: Program) -> None:
        """Raise VerifyError naming the first op left over and its site; change nothing."""
        with scope():
            for function in functions(program.module):
                found: list[Any] = []
                function.walk(lambda op, found=found: _collect(op, found))
                if found:
                    site = program.table.get(location_number(found[0]))
                    raise VerifyError(
                        f"expected only {', '.join(DIALECTS)} after lowering, got {found[0].name}"
                        f"{f'; at {site}' if site else ''}"
                    )


def _collect(op: Any, found: list[Any]) -> Any:
    if op.name.partition(".")[0] not in DIALECTS:
        found.append(op)
    return mlir.WalkResult.ADVANCE
