"""The kernel of cross_entropy: a loss a row and, where wanted, the gradient of their weighted sum."""

from collections.abc import Sequence

from trainc.ir.backward import backward
from trainc.ir.mlir import DYNAMIC
from trainc.ir.ops.cross_entropy_rows import cross_entropy_rows
from trainc.ir.primitives import map_
from trainc.ir.program import Argument, Program, Result, trace
from trainc.ir.tensor import Aval, Tensor


def trace_cross_entropy(classes: int, *, smoothed: bool, gradient: bool) -> Program:
    """Trace `cross_entropy` for any number of rows.

    Args:
        classes: Logits of a row.
        smoothed: Whether there is an argument `smoothing`.
        gradient: Whether there are an argument `rate`, the gradient of each row's loss, and a result `d_logits`.
    """

    def losses(logits: Tensor, targets: Tensor, *scalars: Tensor) -> Sequence[Result]:
        loss = cross_entropy_rows(logits, targets, scalars[0] if smoothed else None)
        results = [Result("losses", loss)]
        if gradient:
            d_loss = map_("t,->t", lambda _, rate: rate, loss, scalars[-1])
            (d_logits,) = backward(loss, [logits], d_loss)
            results.append(Result("d_logits", d_logits))
        return results

    arguments = [Argument("logits", Aval((DYNAMIC, classes))), Argument("targets", Aval((DYNAMIC,), "i32"))]
    arguments += [Argument("smoothing", Aval(()))] * smoothed + [Argument("rate", Aval(()))] * gradient
    program = Program()
    trace(program, "cross_entropy", losses, arguments)
    return program
