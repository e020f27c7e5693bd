"""expand-random-bits: Philox4x32-10 words become integer arithmetic in a map."""

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from trainc.ir import scalar
from trainc.ir.mlir import shape_of
from trainc.ir.primitives import map_, reshape, slice_axis
from trainc.ir.program import Program
from trainc.ir.scalar import Scalar
from trainc.ir.tensor import Tensor
from trainc.passes.rewrite import rewrite_ops

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10


@dataclass(frozen=True)
class ExpandRandomBits:
    """Rewrite random_bits as a map over element positions (Salmon et al. 2011, spec section 5)."""

    name: ClassVar[str] = "expand-random-bits"

    def run(self, program: Program) -> None:
        """Rewrite the program in place."""
        rewrite_ops(program, {"random_bits": _expand})


def _expand(op: Any) -> list[Any]:
    key = Tensor(op.operands[0])
    shape = shape_of(op.results[0])
    parts = [reshape(slice_axis(key, 0, word, 1), ()) for word in range(5)]
    if len(op.operands) > 1:  # one dimension, of the size that the second operand has
        return [map_(",,,,,n->n", lambda *scalars: _word(*scalars[:5]), *parts, Tensor(op.operands[1])).value]
    flat = map_(",,,,->n", _word, *parts, sizes={"n": prod(shape)})
    return [reshape(flat, shape).value]


def _word(seed_low: Scalar, seed_high: Scalar, stream: Scalar, offset_low: Scalar, offset_high: Scalar) -> Scalar:
    """Return the word of one element: word e%4 of block e//4, where e counts from the start of the stream."""
    offset = scalar.widen_unsigned(offset_low) + (scalar.widen_unsigned(offset_high) << 32)
    element = offset + scalar.widen_unsigned(scalar.index(0))
    block = element >> 2
    counter = [scalar.cast(block, "i32"), scalar.cast(block >> 32, "i32"), stream, _u32(0)]
    words = _philox(counter, [seed_low, seed_high])
    lane = element & 3
    low = scalar.select(scalar.equal(lane, 0), words[0], words[1])
    high = scalar.select(scalar.equal(lane, 2), words[2], words[3])
    return scalar.select(lane < 2, low, high)


def _philox(counter: list[Scalar], key: list[Scalar]) -> list[Scalar]:
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        low0, high0 = scalar.multiply_high(c0, _u32(MULTIPLIERS[0]))
        low1, high1 = scalar.multiply_high(c2, _u32(MULTIPLIERS[1]))
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = k0 + _u32(WEYL[0]), k1 + _u32(WEYL[1])
    return [c0, c1, c2, c3]


def _u32(value: int) -> Scalar:
    """Return an unsigned 32-bit constant in two's complement."""
    return scalar.constant(value - 2**32 if value >= 2**31 else value, "i32")
