"""The entries of one block, traced.

Shapes: B batch rows, L length of a whole sequence, T new tokens, D d_model.
"""

from collections.abc import Callable, Sequence

from trainc.core.state_table import StateTable
from trainc.frontends.blocks.kernels import BACKWARD, CONTINUE, FORWARD, PARAMS, STATE, BlockKernel
from trainc.frontends.blocks.states import state_tables
from trainc.frontends.samba.config import SambaConfig
from trainc.frontends.samba.tracing.decode_graph import CONTINUE as CONTINUE_LAYER
from trainc.frontends.samba.tracing.decode_graph import StatePorts
from trainc.frontends.samba.tracing.graph import BLOCKS
from trainc.frontends.tracing.artifact import Source
from trainc.ir.backward import backward
from trainc.ir.program import Argument, Program, Result, trace
from trainc.ir.tensor import Aval, Tensor


def block_source(kernel: BlockKernel) -> Source:
    """Trace one entry of a block for one shape."""
    program = Program()
    _ENTRIES[kernel.entry](program, kernel)
    return Source(
        programs={kernel.entry: program},
        tables={PARAMS: params_table(kernel.config), **_state_tables(kernel)},
        numeric_mode=kernel.mode,
    )


def params_table(config: SambaConfig) -> StateTable:
    """Return the layout of a block's weights."""
    return StateTable.build(PARAMS, config.block_shapes(config.layers[0]))


def _state_tables(kernel: BlockKernel) -> dict[str, StateTable]:
    return state_tables(kernel.config, kernel.rows, kernel.capacity)


def _weights(kernel: BlockKernel) -> list[Argument]:
    return [Argument(t.name, Aval(t.shape), PARAMS) for t in params_table(kernel.config).tensors]


def _batch(kernel: BlockKernel) -> Aval:
    return Aval((kernel.rows, kernel.tokens, kernel.config.d_model))


def _trace_forward(program: Program, kernel: BlockKernel) -> None:
    weights = _weights(kernel)

    def forward(*arguments: Tensor) -> Sequence[Result]:
        named = {w.name: tensor for w, tensor in zip(weights, arguments, strict=False)}
        return [Result("y", BLOCKS[kernel.kind](kernel.config, named, arguments[-1]))]

    trace(program, FORWARD, forward, [*weights, Argument("x", _batch(kernel))])


def _trace_backward(program: Program, kernel: BlockKernel) -> None:
    weights = _weights(kernel)

    def gradients(*arguments: Tensor) -> Sequence[Result]:
        *given, x_BLD, d_y_BLD = arguments
        named = {w.name: tensor for w, tensor in zip(weights, given, strict=True)}
        y_BLD = BLOCKS[kernel.kind](kernel.config, named, x_BLD)
        wrt = {"x": x_BLD, **named}
        found = backward(y_BLD, list(wrt.values()), d_y_BLD)
        return [Result(name, gradient) for name, gradient in zip(wrt, found, strict=True)]

    trace(program, BACKWARD, gradients, [*weights, Argument("x", _batch(kernel)), Argument("dy", _batch(kernel))])


def _trace_continue(program: Program, kernel: BlockKernel) -> None:
    weights = _weights(kernel)
    ports = StatePorts(_state_tables(kernel), STATE)

    def continued(*arguments: Tensor) -> Sequence[Result]:
        *given, x_BTD, length, position = arguments
        named = {w.name: tensor for w, tensor in zip(weights, given, strict=False)}
        old = ports.named(given[len(weights) :])
        y_BTD, new = CONTINUE_LAYER[kernel.kind](kernel.config, named, old, x_BTD, length, position)
        return [Result("y", y_BTD), *ports.results(new)]

    call = [Argument("x", _batch(kernel)), Argument("length", Aval((), "i32")), Argument("position", Aval((), "i32"))]
    trace(program, CONTINUE, continued, [*weights, *ports.arguments(), *call])


_ENTRIES: dict[str, Callable[[Program, BlockKernel], None]] = {
    FORWARD: _trace_forward,
    BACKWARD: _trace_backward,
    CONTINUE: _trace_continue,
}
