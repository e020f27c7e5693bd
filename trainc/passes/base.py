"""Pass: one rewrite of a program; its fields are its options."""

from typing import ClassVar, Protocol, runtime_checkable

from trainc.ir.program import Program


@runtime_checkable
class Pass(Protocol):
    """A frozen dataclass with a name and a run method.

    Attributes:
        name: Name on the command line.
    """

    name: ClassVar[str]

    def run(self, program: Program) -> None:
        """Rewrite the program in place; valid program in, valid program out."""
