"""split-reductions: long sums and maxima are taken in stages, and products with long sums in pieces.

One invocation of a Vulkan driver may run loops only so often: Mesa's software device ends them after 65,535 rounds, all
loops of a kernel together, and returns what it has, without an error (docs/iree-notes.md). No stage or piece here is
longer than LONGEST, which leaves a product some rounds for each step of its sum.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from trainc.core.errors import UnsupportedError
from trainc.ir.mlir import DYNAMIC
from trainc.ir.primitives import concat, matmul, reduce_max, reduce_sum, reshape, slice_axis
from trainc.ir.program import Program
from trainc.ir.spec import Spec, parse_spec
from trainc.ir.tensor import Tensor
from trainc.passes.rewrite import rewrite_ops

LONGEST = 8192
"""Elements of one stage, steps of the sum of one piece of a product."""

Reduce = Callable[[str, Tensor], Tensor]
_REDUCE: dict[str, Reduce] = {"sum": reduce_sum, "max": reduce_max}

_STAGE = 1024
"""Elements that the first stage of a longer reduction takes together."""


@dataclass(frozen=True)
class SplitReductions:
    """Take every reduction over more than LONGEST elements in stages, every product in pieces added one to the next."""

    name: ClassVar[str] = "split-reductions"

    def run(self, program: Program) -> None:
        """Rewrite the program in place.

        Raises:
            UnsupportedError: The length of a reduction, or of a product's sum, is not known before the call.
        """
        rewrite_ops(program, {"reduce": _reduce, "matmul": _matmul})


def _reduce(op: Any) -> list[Any]:
    spec = parse_spec(op.attributes["spec"].value)
    return [_staged(Tensor(op.operands[0]), spec, _REDUCE[op.attributes["kind"].value]).value]


def _staged(x: Tensor, spec: Spec, reduce: Reduce) -> Tensor:
    (term,) = spec.operands
    sizes = {letter: x.shape[term.index(letter)] for letter in spec.reduced}
    _check_known("a reduction", sizes)
    if prod(sizes.values()) <= LONGEST:
        return reduce(f"{term}->{spec.output}", x)
    longest = max(sizes, key=lambda letter: sizes[letter])
    if sizes[longest] > _STAGE:
        return _staged(_shortened(x, term.index(longest), reduce), spec, reduce)
    rest = term.replace(longest, "")
    return _staged(reduce(f"{term}->{rest}", x), Spec((rest,), spec.output), reduce)


def _matmul(op: Any) -> list[Any]:
    left, right, *start = (Tensor(operand) for operand in op.operands)
    return [_in_pieces(op.attributes["spec"].value, left, right, *start).value]


def _in_pieces(text: str, left: Tensor, right: Tensor, start: Tensor | None = None) -> Tensor:
    spec = parse_spec(text)
    a, b = spec.operands
    sizes = {letter: left.shape[a.index(letter)] for letter in spec.reduced}
    _check_known("a product", sizes)
    if prod(sizes.values()) <= LONGEST:
        return matmul(text, left, right, start)
    longest = max(sizes, key=lambda letter: sizes[letter])
    size = sizes[longest]
    step = max(1, LONGEST * size // prod(sizes.values()))
    for first in range(0, size, step):
        length = min(step, size - first)
        x = slice_axis(left, a.index(longest), first, length)
        y = slice_axis(right, b.index(longest), first, length)
        start = _in_pieces(text, x, y, start)
    assert start is not None, "a size above zero"
    return start


def _check_known(what: str, sizes: dict[str, int]) -> None:
    if DYNAMIC in sizes.values():
        raise UnsupportedError(f"{what} over a length that each call chooses cannot be compiled for this target")


def _shortened(x: Tensor, axis: int, reduce: Reduce) -> Tensor:
    """Reduce each run of _STAGE elements of an axis to one, and what is left over to one more."""
    runs, left_over = divmod(x.shape[axis], _STAGE)
    before, after = "abcdefgh"[:axis], "ijklmnop"[: x.rank - axis - 1]
    cut = reshape(slice_axis(x, axis, 0, runs * _STAGE), (*x.shape[:axis], runs, _STAGE, *x.shape[axis + 1 :]))
    parts = [reduce(f"{before}yz{after}->{before}y{after}", cut)]
    if left_over:
        rest = reduce(f"{before}z{after}->{before}{after}", slice_axis(x, axis, runs * _STAGE, left_over))
        parts.append(reshape(rest, (*x.shape[:axis], 1, *x.shape[axis + 1 :])))
    return concat(parts, axis)
