"""The kernels of rms_norm_forward and rms_norm_backward."""

from collections.abc import Sequence

from trainc.ir.backward import backward
from trainc.ir.mlir import DYNAMIC
from trainc.ir.ops.rms_norm import rms_norm
from trainc.ir.program import Argument, Program, Result, trace
from trainc.ir.tensor import Aval, Tensor


def trace_rms_norm_forward(width: int, eps: float) -> Program:
    """Trace `rms_norm_forward` for any number of rows."""

    def forward(x: Tensor, weight: Tensor) -> Sequence[Result]:
        return [Result("y", rms_norm(x, weight, eps))]

    program = Program()
    trace(program, "rms_norm_forward", forward, _arguments("x", width))
    return program


def trace_rms_norm_backward(width: int, eps: float) -> Program:
    """Trace `rms_norm_backward` for any number of rows."""

    def gradients(dy: Tensor, x: Tensor, weight: Tensor) -> Sequence[Result]:
        d_x, d_weight = backward(rms_norm(x, weight, eps), [x, weight], dy)
        return [Result("d_x", d_x), Result("d_weight", d_weight)]

    program = Program()
    rows = Argument("dy", Aval((DYNAMIC, width)))
    trace(program, "rms_norm_backward", gradients, [rows, *_arguments("x", width)])
    return program


def _arguments(name: str, width: int) -> list[Argument]:
    return [Argument(name, Aval((DYNAMIC, width))), Argument("weight", Aval((width,)))]
