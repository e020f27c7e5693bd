"""The small multilayer perceptron, traced.

Shapes: N rows (dynamic), I inputs, C classes.
"""

from collections.abc import Sequence

from trainc.frontends.small_mlp import CLASSES, INPUTS, SHAPES
from trainc.ir.backward import backward
from trainc.ir.mlir import DYNAMIC
from trainc.ir.ops.add_bias import add_bias
from trainc.ir.ops.cross_entropy import cross_entropy
from trainc.ir.ops.linear import linear
from trainc.ir.ops.relu import relu
from trainc.ir.program import Argument, Program, Result, trace
from trainc.ir.tensor import Aval, Tensor


def trace_mlp(entry: str) -> Program:
    """Trace an entry.

    Args:
        entry: "gradients": loss, logits and d_x, the weights' gradients into the buffer "grads"; or "predict": logits.
    """
    program = Program()
    arguments = [*(Argument(name, Aval(shape), "params") for name, shape in SHAPES), _rows()]
    if entry == "gradients":
        arguments += [Argument("y", Aval((DYNAMIC,), "i32")), Argument("divisor", Aval(()))]
    trace(program, entry, {"gradients": _gradients, "predict": _predict}[entry], arguments)
    return program


def _rows() -> Argument:
    return Argument("x", Aval((DYNAMIC, INPUTS)))


def _logits(weights: Sequence[Tensor], x_NI: Tensor) -> Tensor:
    weight1, bias1, weight2, bias2 = weights
    return add_bias(linear(relu(add_bias(linear(x_NI, weight1), bias1)), weight2), bias2)


def _predict(*arguments: Tensor) -> list[Result]:
    *weights, x_NI = arguments
    return [Result("logits", _logits(weights, x_NI))]


def _gradients(*arguments: Tensor) -> list[Result]:
    *weights, x_NI, y_N, divisor = arguments
    logits_NC = _logits(weights, x_NI)
    assert logits_NC.shape[1] == CLASSES
    loss = cross_entropy(logits_NC, y_N, divisor)
    d_x_NI, *d_weights = backward(loss, [x_NI, *weights])
    found = zip(SHAPES, d_weights, strict=True)
    return [
        Result("loss", loss),
        Result("logits", logits_NC),
        Result("d_x", d_x_NI),
        *(Result(name, gradient, "grads") for (name, _), gradient in found),
    ]
