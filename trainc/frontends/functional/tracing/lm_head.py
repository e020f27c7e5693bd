"""The kernels of chunked_lm_head_loss: one block of classes, any number of rows."""

from collections.abc import Callable, Sequence

from trainc.ir.mlir import DYNAMIC
from trainc.ir.ops.lm_head import lm_head_grads, lm_head_scores
from trainc.ir.program import Argument, Program, Result, trace
from trainc.ir.tensor import Aval, Tensor


def trace_lm_head_scores(width: int, classes: int) -> Program:
    """Trace `lm_head_scores` for a head (classes, width)."""

    def scores(*operands: Tensor) -> Sequence[Result]:
        tops, masses, picked = lm_head_scores(*operands)
        return [Result("tops", tops), Result("masses", masses), Result("picked", picked)]

    program = Program()
    trace(program, "lm_head_scores", scores, _block(width, classes))
    return program


def trace_lm_head_grads(width: int, classes: int) -> Program:
    """Trace `lm_head_grads` for a head (classes, width)."""

    def grads(*operands: Tensor) -> Sequence[Result]:
        hidden, weight, targets, classes, top, mass, rate, *before = operands
        d_hidden, d_weight = lm_head_grads(hidden, weight, targets, classes, (top, mass), rate, before[0], before[1])
        return [Result("d_hidden", d_hidden), Result("d_weight", d_weight)]

    rows = Aval((DYNAMIC,))
    arguments = [
        *_block(width, classes),
        Argument("top", rows),
        Argument("mass", rows),
        Argument("rate", Aval(())),
        Argument("d_hidden", Aval((DYNAMIC, width))),
        Argument("d_weight", Aval((classes, width))),
    ]
    program = Program()
    trace(program, "lm_head_grads", grads, arguments)
    return program


TRACED: dict[str, Callable[[int, int], Program]] = {
    "lm_head_scores": trace_lm_head_scores,
    "lm_head_grads": trace_lm_head_grads,
}


def _block(width: int, classes: int) -> list[Argument]:
    return [
        Argument("hidden", Aval((DYNAMIC, width))),
        Argument("weight", Aval((classes, width))),
        Argument("targets", Aval((DYNAMIC,), "i32")),
        Argument("classes", Aval((), "i32")),
    ]
