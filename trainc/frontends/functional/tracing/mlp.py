"""The kernel of mlp_inference_sessions."""

from collections.abc import Sequence

from trainc.ir.mlir import DYNAMIC
from trainc.ir.ops.add_bias import add_bias
from trainc.ir.ops.linear import linear
from trainc.ir.ops.relu import relu
from trainc.ir.program import Argument, Program, Result, trace
from trainc.ir.tensor import Aval, Tensor


def trace_mlp(width: int, hidden: int, outputs: int) -> Program:
    """Trace `mlp`, the forward pass of a Linear-ReLU-Linear model, for any number of rows."""

    def forward(x: Tensor, weight1: Tensor, bias1: Tensor, weight2: Tensor, bias2: Tensor) -> Sequence[Result]:
        return [Result("y", add_bias(linear(relu(add_bias(linear(x, weight1), bias1)), weight2), bias2))]

    program = Program()
    arguments = [
        Argument("x", Aval((DYNAMIC, width))),
        Argument("weight1", Aval((hidden, width))),
        Argument("bias1", Aval((hidden,))),
        Argument("weight2", Aval((outputs, hidden))),
        Argument("bias2", Aval((outputs,))),
    ]
    trace(program, "mlp", forward, arguments)
    return program
