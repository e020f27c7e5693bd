"""The update rules as programs over memory of any length, and the partial sums of gradient norms."""

from collections.abc import Callable, Sequence

from trainc.core import adam as adam_scalars
from trainc.core import adamw as adamw_scalars
from trainc.core import sgd as sgd_scalars
from trainc.frontends.tracing.artifact import Source
from trainc.ir.mlir import DYNAMIC
from trainc.ir.ops.adam import adam
from trainc.ir.ops.adamw import adamw
from trainc.ir.ops.block_norms import BLOCK, block_norms
from trainc.ir.ops.sgd import sgd, sgd_momentum
from trainc.ir.program import WHOLE, Argument, Program, Result, trace
from trainc.ir.tensor import Aval, Tensor

_RULES: dict[str, tuple[Callable[..., Tensor | tuple[Tensor, ...]], tuple[str, ...], tuple[str, ...]]] = {
    "sgd": (sgd, ("p",), sgd_scalars.PLAIN_COEFFICIENT_NAMES),
    "sgd_momentum": (sgd_momentum, ("p", "b"), sgd_scalars.MOMENTUM_COEFFICIENT_NAMES),
    "adam": (adam, ("p", "m", "v"), adam_scalars.COEFFICIENT_NAMES),
    "adamw": (adamw, ("p", "m", "v"), adamw_scalars.COEFFICIENT_NAMES),
}
"""Each rule's op, the buffers it rewrites (its gradient `g` comes after them) and its scalars."""


def rule_source(rule: str, numeric_mode: str) -> Source:
    """Return the source of the kernel of one update rule; its one entry has the rule's name."""
    op, written, names = _RULES[rule]
    buffers = (*written, "g")

    def step(*tensors: Tensor) -> Sequence[Result]:
        operands, scalars = tensors[: len(buffers)], tensors[len(buffers) :]
        results = op(*operands, dict(zip(names, scalars, strict=True)))
        values = (results,) if isinstance(results, Tensor) else results
        return [Result(WHOLE, value, name) for name, value in zip(written, values, strict=True)]

    arguments = [Argument(WHOLE, Aval((DYNAMIC,)), name) for name in buffers]
    arguments += [Argument(name, Aval(())) for name in names]
    program = Program()
    trace(program, rule, step, arguments)
    return Source({rule: program}, numeric_mode=numeric_mode)


def norms_source(numeric_mode: str) -> Source:
    """Return the source of the kernel whose entry `norms` gives the partial sums of rows of 64 elements."""

    def norms(g: Tensor) -> Sequence[Result]:
        largest, sums = block_norms(g)
        return [Result("block_max", largest), Result("block_sumsq", sums)]

    program = Program()
    trace(program, "norms", norms, [Argument("g", Aval((DYNAMIC, BLOCK)))])
    return Source({"norms": program}, numeric_mode=numeric_mode)
