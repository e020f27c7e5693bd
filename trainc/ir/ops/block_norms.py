"""block_norms: what a global gradient norm needs from each block of a flat buffer, without overflow or underflow.

Shapes: N elements, C = N/64 blocks, K = 64 elements of a block.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.errors import ShapeError
from trainc.ir import scalar
from trainc.ir.builder import emit
from trainc.ir.ops.expect import expect_float, expect_rank, expect_shape
from trainc.ir.primitives import elementwise, map_, reduce_max, reduce_sum, reshape
from trainc.ir.registry import OpDef, register
from trainc.ir.scalar import Scalar
from trainc.ir.tensor import Aval, Tensor

Array = npt.NDArray[Any]

BLOCK = 64


def _infer(g: Aval) -> list[Aval]:
    expect_float("g", g)
    if len(g.shape) == 2:
        expect_shape("g", g, (g.shape[0], BLOCK))
        return [Aval(g.shape[:1], g.dtype)] * 2
    expect_rank("g", g, 1, "(N,) or (C, K)")
    if g.shape[0] % BLOCK:
        raise ShapeError(f"expected a multiple of {BLOCK} elements, got {g.shape[0]}; pad the buffer with zeros")
    per_block = Aval((g.shape[0] // BLOCK,), g.dtype)
    return [per_block, per_block]


def _reference(g_N: Array) -> tuple[Array, Array]:
    largest, sums = [], []
    for start in range(0, g_N.size, BLOCK):
        block = np.abs(g_N.reshape(-1)[start : start + BLOCK])
        largest.append(block.max())
        sums.append(np.sum((block / largest[-1]) ** 2) if largest[-1] != 0.0 else 0.0)
    return np.array(largest, g_N.dtype), np.array(sums, g_N.dtype)


def _decompose(g_N: Tensor) -> tuple[Tensor, Tensor]:
    g_CK = g_N if len(g_N.shape) == 2 else reshape(g_N, (g_N.shape[0] // BLOCK, BLOCK))
    size_CK = elementwise(scalar.absolute, g_CK)
    largest_C = reduce_max("ck->c", size_CK)

    def square(size: Scalar, largest: Scalar) -> Scalar:
        ratio = size / scalar.select(scalar.equal(largest, 0.0), 1.0, largest)
        return ratio * ratio

    return largest_C, reduce_sum("ck->c", map_("ck,c->ck", square, size_CK, largest_C))


BLOCK_NORMS = register(OpDef("block_norms", ("g",), _infer, reference=_reference, decompose=_decompose))


def block_norms(g: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest magnitude m of each block of 64 elements, and the sum of (g/m)^2 within it.

    A block's sum of squares is m^2 times the second result; the host combines them in float64, so gradients of
    1e20 or 1e-30 have a norm (spec section 13).

    Args:
        g: Shape (N,), float, N a multiple of 64; or (C, 64), where C may be dynamic.

    Returns:
        Two tensors (C,), C = N/64. A block with a NaN or an infinity has it as its largest magnitude; its sum then
        means nothing. A block of zeros gives 0 and 0.

    Raises:
        ShapeError: N is not a multiple of 64, or rows do not have 64 elements.
        DtypeError: g is not float.
    """
    largest, sums = emit(BLOCK_NORMS, [g])
    return largest, sums
