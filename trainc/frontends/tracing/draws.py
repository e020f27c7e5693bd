"""The kernels of random draws: uniform values and dropout over any number of elements."""

from collections.abc import Callable, Sequence

from trainc.frontends.tracing.artifact import Source
from trainc.ir import scalar
from trainc.ir.mlir import DYNAMIC
from trainc.ir.primitives import map_, random_bits
from trainc.ir.program import WHOLE, Argument, Program, Result, trace
from trainc.ir.scalar import Scalar
from trainc.ir.tensor import Aval, Tensor

_UNIT = 2.0**-24
_KEY = Argument("key", Aval((5,), "i32"))


def uniform_source() -> Source:
    """Return the source of `uniform`: low + span * unit with one rounding, into memory of any length."""

    def draw(out: Tensor, key: Tensor, low: Tensor, span: Tensor) -> Sequence[Result]:
        def element(word: Scalar, low: Scalar, span: Scalar) -> Scalar:
            return scalar.fma(scalar.unsigned_to_float(word >> 8, "f32") * _UNIT, span, low)

        return [Result(WHOLE, map_("n,,->n", element, random_bits(key, out), low, span), "out")]

    scalars = [Argument("low", Aval(())), Argument("span", Aval(()))]
    return _source("uniform", draw, [Argument(WHOLE, Aval((DYNAMIC,)), "out"), _KEY, *scalars])


def dropout_source() -> Source:
    """Return the source of `dropout`: x * scale where the word's upper 24 bits reach `threshold`, else +0.0."""

    def draw(x: Tensor, key: Tensor, threshold: Tensor, scale: Tensor) -> Sequence[Result]:
        def element(e: Scalar, word: Scalar, threshold: Scalar, scale: Scalar) -> Scalar:
            return scalar.select((word >> 8) >= threshold, e * scale, 0.0)

        return [Result("y", map_("n,n,,->n", element, x, random_bits(key, x), threshold, scale))]

    scalars = [Argument("threshold", Aval((), "i32")), Argument("scale", Aval(()))]
    return _source("dropout", draw, [Argument("x", Aval((DYNAMIC,))), _KEY, *scalars])


DRAWS: dict[str, Callable[[], Source]] = {"uniform": uniform_source, "dropout": dropout_source}
"""What traces each kernel."""


def _source(name: str, draw: Callable[..., Sequence[Result]], arguments: Sequence[Argument]) -> Source:
    program = Program()
    trace(program, name, draw, arguments)
    return Source({name: program})
