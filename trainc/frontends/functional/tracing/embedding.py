"""The kernel of embedding_backward."""

from collections.abc import Sequence

from trainc.ir.mlir import DYNAMIC
from trainc.ir.primitives import scatter_add
from trainc.ir.program import Argument, Program, Result, trace
from trainc.ir.tensor import Aval, Tensor


def trace_embedding_backward(rows: int, width: int) -> Program:
    """Trace `embedding_backward` for any number of ids into a table (rows, width)."""

    def gradient(dy: Tensor, ids: Tensor) -> Sequence[Result]:
        return [Result("d_weight", scatter_add(dy, ids, rows))]

    program = Program()
    arguments = [Argument("dy", Aval((DYNAMIC, width))), Argument("ids", Aval((DYNAMIC,), "i32"))]
    trace(program, "embedding_backward", gradient, arguments)
    return program
