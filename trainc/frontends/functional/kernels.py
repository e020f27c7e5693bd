"""Loading a function's kernel: one for each numeric mode and each set of sizes that is not a number of rows."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainc.frontends.kernels import load_kernel
from trainc.runtime.program import Program

if TYPE_CHECKING:
    from trainc.ir.program import Program as Traced


def functional_kernel(name: str, numeric_mode: str, traced: Callable[[], "Traced"], **parameters: Any) -> Program:
    """Return the kernel of a function.

    Args:
        name: Its name; the name of its entry too, if it has only one.
        numeric_mode: Numeric mode it is compiled in.
        traced: Traces it; called only if it was never compiled on this machine.
        **parameters: What the traced program depends on.
    """

    def source() -> Any:
        from trainc.frontends.tracing.artifact import Source

        return Source({name: traced()}, numeric_mode=numeric_mode)

    return load_kernel(name, {"numeric_mode": numeric_mode, **parameters}, source)
