"""The kernels of linear_forward and linear_backward."""

from collections.abc import Sequence

from trainc.ir.backward import backward
from trainc.ir.mlir import DYNAMIC
from trainc.ir.ops.linear import linear
from trainc.ir.program import Argument, Program, Result, trace
from trainc.ir.tensor import Aval, Tensor


def trace_linear_forward(inputs: int, outputs: int) -> Program:
    """Trace `linear_forward` for any number of rows."""

    def forward(a: Tensor, weight: Tensor) -> Sequence[Result]:
        return [Result("c", linear(a, weight))]

    program = Program()
    arguments = [Argument("a", Aval((DYNAMIC, inputs))), Argument("weight", Aval((outputs, inputs)))]
    trace(program, "linear_forward", forward, arguments)
    return program


def trace_linear_backward(inputs: int, outputs: int) -> Program:
    """Trace `linear_backward` for any number of rows."""

    def gradients(dc: Tensor, a: Tensor, weight: Tensor) -> Sequence[Result]:
        d_a, d_weight = backward(linear(a, weight), [a, weight], dc)
        return [Result("d_a", d_a), Result("d_weight", d_weight)]

    program = Program()
    arguments = [
        Argument("dc", Aval((DYNAMIC, outputs))),
        Argument("a", Aval((DYNAMIC, inputs))),
        Argument("weight", Aval((outputs, inputs))),
    ]
    trace(program, "linear_backward", gradients, arguments)
    return program
