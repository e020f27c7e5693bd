"""The entries of a Samba artifact, traced: training, evaluation and decoding.

Parameters, gradients, moments and decode state are flat buffers; each entry
names the buffers it reads and writes (trainc.passes.bind_buffers gives them their calling convention).
"""

from collections.abc import Callable, Sequence

from trainc.core.state_table import StateTable
from trainc.frontends.samba.config import SambaConfig
from trainc.frontends.samba.config_file import SambaRunConfig
from trainc.frontends.samba.state import NAMES, decode_tables
from trainc.frontends.samba.tracing.decode_graph import StatePorts, continue_sequence
from trainc.frontends.samba.tracing.graph import Dropout, head_logits, hidden_states
from trainc.frontends.tracing.common import trace_buffer_entries
from trainc.frontends.tracing.probes import trace_probes
from trainc.ir.backward import backward
from trainc.ir.builder import layer
from trainc.ir.ops.cross_entropy import cross_entropy_and_parts
from trainc.ir.primitives import fill, reshape
from trainc.ir.program import Argument, Program, Result, trace
from trainc.ir.tensor import Aval, Tensor

TRAIN, COMMON, MODEL, SELFTEST = "train", "common", "model", "selftest"
"""The modules of an artifact: the training step of one bucket, the shape-free entries, evaluation and decoding, and the
kinds of dispatch one by one."""


def params_table(config: SambaConfig) -> StateTable:
    """Return the layout of the flat parameter buffer; gradients and moments share it."""
    return StateTable.build("params", config.registry())


def state_tables(run: SambaRunConfig) -> dict[str, StateTable]:
    """Return the layout of every flat buffer that entries name."""
    params = params_table(run.model)
    decode = decode_tables(run.model, run.decode.rows, run.decode.max_tokens)
    return dict.fromkeys(("params", "grads", "accum", "m", "v"), params) | decode


def trace_train(run: SambaRunConfig) -> Program:
    """Trace `gradients` for one microbatch."""
    program = Program()
    _trace_gradients(program, run)
    return program


def trace_common(run: SambaRunConfig) -> Program:
    """Trace the entries whose shape is the flat buffer's: accumulate, norms, update."""
    return trace_buffer_entries(params_table(run.model).size)


def trace_model(run: SambaRunConfig) -> Program:
    """Trace the entries without gradients: eval_loss, forward, prefill, decode."""
    program = Program()
    _trace_eval_loss(program, run)
    _trace_forward(program, run)
    _trace_continue(program, run, "prefill", run.decode.prefill)
    _trace_continue(program, run, "decode", 1)
    return program


def trace_entry(run: SambaRunConfig, entry: str) -> Program:
    """Trace one entry that depends on a batch's shape: gradients, eval_loss, forward, or continue.

    `continue` reads `run.decode.prefill` new tokens from a state, as prefill does, and gives the logits of all of them.
    """
    program = Program()
    _ENTRIES[entry](program, run)
    return program


MODULES: dict[str, Callable[[SambaRunConfig], Program]] = {
    TRAIN: trace_train,
    COMMON: trace_common,
    MODEL: trace_model,
    SELFTEST: lambda run: trace_probes(),
}
"""What traces each module."""


def _parameters(config: SambaConfig) -> list[Argument]:
    return [Argument(name, Aval(tuple(shape)), "params") for name, shape in config.registry()]


def _bucket(run: SambaRunConfig) -> Aval:
    return Aval((run.batch.rows // run.batch.accumulation_steps, run.batch.length), "i32")


def _loss(
    run: SambaRunConfig, hidden_BLD: Tensor, weights: dict[str, Tensor], targets_BL: Tensor, divisor: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the loss, and each token's part of it, which the host adds in float64."""
    batch, length, width = hidden_BLD.shape
    logits_TV = head_logits(weights, reshape(hidden_BLD, (batch * length, width)))
    with layer("loss"):
        return cross_entropy_and_parts(logits_TV, reshape(targets_BL, (batch * length,)), divisor)


def _trace_gradients(program: Program, run: SambaRunConfig) -> None:
    config = run.model
    names = [name for name, _ in config.registry()]

    def gradients(*arguments: Tensor) -> Sequence[Result]:
        weights = dict(zip(names, arguments, strict=False))
        ids, targets, divisor, *key = arguments[len(names) :]
        at = Dropout(config.dropout, key[0]) if key else None
        hidden = hidden_states(config, weights, ids, at)
        loss, parts = _loss(run, hidden, weights, targets, divisor)
        d_weights = backward(loss, [weights[name] for name in names])
        return [
            Result("loss", parts),
            *(Result(name, tensor, "grads") for name, tensor in zip(names, d_weights, strict=True)),
        ]

    bucket = _bucket(run)
    arguments = [Argument("ids", bucket), Argument("targets", bucket), Argument("divisor", Aval(()))]
    if config.dropout:
        arguments.append(Argument("dropout_key", Aval((5,), "i32")))
    trace(program, "gradients", gradients, [*_parameters(config), *arguments])


def _trace_eval_loss(program: Program, run: SambaRunConfig) -> None:
    names = [name for name, _ in run.model.registry()]

    def eval_loss(*arguments: Tensor) -> Sequence[Result]:
        weights = dict(zip(names, arguments, strict=False))
        ids, targets = arguments[len(names) :]
        hidden = hidden_states(run.model, weights, ids)
        _, parts = _loss(run, hidden, weights, targets, fill(1.0, ()))
        return [Result("nll", parts)]

    bucket = _bucket(run)
    trace(
        program, "eval_loss", eval_loss, [*_parameters(run.model), Argument("ids", bucket), Argument("targets", bucket)]
    )


def _trace_forward(program: Program, run: SambaRunConfig) -> None:
    names = [name for name, _ in run.model.registry()]

    def forward(*arguments: Tensor) -> Sequence[Result]:
        weights = dict(zip(names, arguments, strict=False))
        return [Result("logits", head_logits(weights, hidden_states(run.model, weights, arguments[-1])))]

    trace(program, "forward", forward, [*_parameters(run.model), Argument("ids", _bucket(run))])


def _trace_continue(program: Program, run: SambaRunConfig, entry: str, tokens: int, *, every: bool = False) -> None:
    names = [name for name, _ in run.model.registry()]
    ports = StatePorts(decode_tables(run.model, run.decode.rows, run.decode.max_tokens), NAMES)

    def continued(*arguments: Tensor) -> Sequence[Result]:
        weights = dict(zip(names, arguments, strict=False))
        *given, ids, length, position = arguments[len(names) :]
        state = ports.named(given)
        logits, new_state = continue_sequence(run.model, weights, state, ids, length, position, every=every)
        return [Result("logits", logits), *ports.results(new_state)]

    call = [
        Argument("ids", Aval((run.decode.rows, tokens), "i32")),
        Argument("length", Aval((), "i32")),
        Argument("position", Aval((), "i32")),
    ]
    trace(program, entry, continued, [*_parameters(run.model), *ports.arguments(), *call])


_ENTRIES: dict[str, Callable[[Program, SambaRunConfig], None]] = {
    "gradients": _trace_gradients,
    "eval_loss": _trace_eval_loss,
    "forward": _trace_forward,
    "continue": lambda program, run: _trace_continue(program, run, "continue", run.decode.prefill, every=True),
}
