"""Running a list of passes, with verification around each."""

from collections.abc import Callable, Sequence

from trainc.ir.program import Program
from trainc.ir.verify import verify
from trainc.passes.base import Pass

Dump = Callable[[str, str], None]
"""Takes a pass's name and the program's text after it."""


def run_passes(program: Program, passes: Sequence[Pass], dump: Dump | None = None) -> None:
    """Run passes in order on a program, in place, verifying before the first and after each.

    Args:
        program: Rewritten in place.
        passes: The pipeline.
        dump: Called after each pass, for reading and debugging.

    Raises:
        VerifyError: The program is invalid before or after a pass; the message names the pass.
    """
    verify(program)
    for item in passes:
        item.run(program)
        verify(program)
        if dump is not None:
            dump(item.name, program.print())
