"""The entries of training that depend only on the size of the flat buffers: accumulate, norms, update."""

from collections.abc import Mapping, Sequence

from trainc.core.adamw import COEFFICIENT_NAMES, AdamWSettings, coefficients
from trainc.core.selftest import Draw
from trainc.ir.ops.adamw import adamw
from trainc.ir.ops.add import add
from trainc.ir.ops.block_norms import block_norms
from trainc.ir.program import WHOLE, Argument, Program, Result, trace
from trainc.ir.tensor import Aval, Tensor

COMMON_DRAWS: Mapping[str, Draw] = {
    "grads": Draw("uniform", -0.02, 0.02),
    "accum": Draw("uniform", -0.02, 0.02),
    "m": Draw("uniform", -0.01, 0.01),
    "v": Draw("uniform", 1e-7, 1e-6),
    **{
        name: Draw("constant", float(value))
        for name, value in coefficients(AdamWSettings(eps=1e-3, weight_decay=0.1), lr=0.01, step=3, clip=0.5).items()
    },
}
"""How the self-test draws what these entries take, but for the weights: every term of the update counts."""


def trace_buffer_entries(size: int) -> Program:
    """Trace accumulate, norms and update.

    Args:
        size: Elements of the buffers "params", "grads", "accum", "m" and "v".
    """
    program = Program()
    flat = Aval((size,))

    def accumulate(total: Tensor, addend: Tensor) -> Sequence[Result]:
        return [Result(WHOLE, add(total, addend), "grads")]

    def norms(gradient: Tensor) -> Sequence[Result]:
        largest, scaled = block_norms(gradient)
        return [Result("block_max", largest), Result("block_sumsq", scaled)]

    def update(p: Tensor, m: Tensor, v: Tensor, g: Tensor, *coefficients: Tensor) -> Sequence[Result]:
        named = dict(zip(COEFFICIENT_NAMES, coefficients, strict=True))
        new = adamw(p, m, v, g, named)
        return [Result(WHOLE, tensor, state) for tensor, state in zip(new, ("params", "m", "v"), strict=True)]

    def whole(*states: str) -> list[Argument]:
        return [Argument(WHOLE, flat, state) for state in states]

    trace(program, "accumulate", accumulate, whole("grads", "accum"))
    trace(program, "norms", norms, whole("grads"))
    scalars = [Argument(name, Aval(())) for name in COEFFICIENT_NAMES]
    trace(program, "update", update, [*whole("params", "m", "v", "grads"), *scalars])
    return program
