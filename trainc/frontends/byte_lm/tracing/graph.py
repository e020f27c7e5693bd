"""The byte language model as a graph, and its entries.

Shapes: B batch rows, L length, D d_model, V vocabulary, T = B*L tokens.
"""

from collections.abc import Callable, Mapping, Sequence

from trainc.frontends.byte_lm.config import BLOCK_NAMES, LanguageModelConfig
from trainc.frontends.samba.tracing.graph import attention_block
from trainc.ir.backward import backward
from trainc.ir.builder import layer
from trainc.ir.ops.cross_entropy import cross_entropy
from trainc.ir.ops.embedding import embedding
from trainc.ir.ops.linear import linear
from trainc.ir.primitives import fill, reshape
from trainc.ir.program import Argument, Program, Result, trace
from trainc.ir.tensor import Aval, Tensor

Weights = Mapping[str, Tensor]


def trace_language_model(config: LanguageModelConfig, entry: str) -> Program:
    """Trace an entry for the configuration's shape of batch.

    Args:
        config: The model.
        entry: "gradients": the loss, and the weights' gradients into the buffer "grads"; "eval_loss": nll_sum; or
            "forward": logits (B, L, V).
    """
    program = Program()
    weights = [Argument(name, Aval(shape), "params") for name, shape in config.registry()]
    batch = Aval((config.batch, config.length), "i32")
    function, names = _ENTRIES[entry]
    call = [Argument(name, Aval(()) if name == "divisor" else batch) for name in names]

    def entry_function(*arguments: Tensor) -> Sequence[Result]:
        named = {w.name: tensor for w, tensor in zip(weights, arguments, strict=False)}
        return function(config, named, *arguments[len(weights) :])

    trace(program, entry, entry_function, [*weights, *call])
    return program


def _logits(config: LanguageModelConfig, w: Weights, ids_BL: Tensor) -> Tensor:
    """Return logits (B, L, V)."""
    with layer("embed"):
        x_BLD = embedding(w["embed"], ids_BL)
    for number in range(config.n_layers):
        with layer(f"block{number}"):
            here = {layer_name: w[f"block{number}.{name}"] for name, layer_name in BLOCK_NAMES.items()}
            x_BLD = attention_block(config.block, here, x_BLD)
    with layer("lm_head"):
        return linear(x_BLD, w["lm_head"])


def _loss(config: LanguageModelConfig, w: Weights, ids_BL: Tensor, targets_BL: Tensor, divisor: Tensor) -> Tensor:
    tokens = config.batch * config.length
    logits_TV = reshape(_logits(config, w, ids_BL), (tokens, config.vocab_size))
    with layer("loss"):
        return cross_entropy(logits_TV, reshape(targets_BL, (tokens,)), divisor)


def _gradients(config: LanguageModelConfig, w: Weights, ids: Tensor, targets: Tensor, divisor: Tensor) -> list[Result]:
    loss = _loss(config, w, ids, targets, divisor)
    found = zip(w, backward(loss, list(w.values())), strict=True)
    return [Result("loss", loss), *(Result(name, gradient, "grads") for name, gradient in found)]


def _eval_loss(config: LanguageModelConfig, w: Weights, ids: Tensor, targets: Tensor) -> list[Result]:
    return [Result("nll_sum", _loss(config, w, ids, targets, fill(1.0, ())))]


def _forward(config: LanguageModelConfig, w: Weights, ids: Tensor) -> list[Result]:
    return [Result("logits", _logits(config, w, ids))]


_ENTRIES: dict[str, tuple[Callable[..., list[Result]], tuple[str, ...]]] = {
    "gradients": (_gradients, ("ids", "targets", "divisor")),
    "eval_loss": (_eval_loss, ("ids", "targets")),
    "forward": (_forward, ("ids",)),
}
