"""split-reductions: long sums and maxima are taken in stages.

One invocation of a Vulkan driver may run a loop only so often: Mesa's software device ends each after 65,535 rounds
and returns what it has, without an error (docs/iree-notes.md). No stage here is longer than LONGEST.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from trainc.core.errors import UnsupportedError
from trainc.ir.mlir import DYNAMIC
from trainc.ir.primitives import concat, reduce_max, reduce_sum, reshape, slice_axis
from trainc.ir.program import Program
from trainc.ir.spec import Spec, parse_spec
from trainc.ir.tensor import Tensor
from trainc.passes.rewrite import rewrite_ops

LONGEST = 8192
"""Elements of one stage."""

Reduce = Callable[[str, Tensor], Tensor]
_REDUCE: dict[str, Reduce] = {"sum": reduce_sum, "max": reduce_max}

_STAGE = 1024
"""Elements that the first stage of a longer reduction takes together."""


@dataclass(frozen=True)
class SplitReductions:
    """Take every reduction over more than LONGEST elements in stages."""

    name: ClassVar[str] = "split-reductions"

    def run(self, program: Program) -> None:
        """Rewrite the program in place.

        Raises:
            UnsupportedError: The length of a reduction is not known before the call.
        """
        rewrite_ops(program, {"reduce": _reduce})


def _reduce(op: Any) -> list[Any]:
    spec = parse_spec(op.attributes["spec"].value)
    return [_staged(Tensor(op.operands[0]), spec, _REDUCE[op.attributes["kind"].value]).value]


def _staged(x: Tensor, spec: Spec, reduce: Reduce) -> Tensor:
    (term,) = spec.operands
    sizes = {letter: x.shape[term.index(letter)] for letter in spec.reduced}
    if DYNAMIC in sizes.values():
        raise UnsupportedError("a reduction whose length each call chooses cannot be compiled for this target")
    if prod(sizes.values()) <= LONGEST:
        return reduce(f"{term}->{spec.output}", x)
    longest = max(sizes, key=lambda letter: sizes[letter])
    if sizes[longest] > _STAGE:
        return _staged(_shortened(x, term.index(longest), reduce), spec, reduce)
    rest = term.replace(longest, "")
    return _staged(reduce(f"{term}->{rest}", x), Spec((rest,), spec.output), reduce)


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
