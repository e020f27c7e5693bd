"""take_last: the last valid row of each sequence of a padded batch.

Shapes: B batch, L padded length, D row length.
"""

from typing import Any

import numpy.typing as npt

from trainc.ir.builder import emit
from trainc.ir.ops.expect import expect_dtype, expect_rank, expect_shape
from trainc.ir.primitives import elementwise, gather, reshape
from trainc.ir.registry import OpDef, register
from trainc.ir.tensor import Aval, Tensor

Array = npt.NDArray[Any]


def _infer(h: Aval, length: Aval) -> list[Aval]:
    expect_rank("h", h, 3, "(B, L, D)")
    expect_dtype("length", length, "i32")
    expect_shape("length", length, ())
    return [Aval((h.shape[0], h.shape[2]), h.dtype)]


def _reference(h_BLD: Array, length: Array) -> Array:
    return h_BLD[:, int(length) - 1, :]


def _decompose(h_BLD: Tensor, length: Tensor) -> Tensor:
    row_1 = elementwise(lambda count: count - 1, reshape(length, (1,)))
    return reshape(gather(h_BLD, row_1, axis=1), (h_BLD.shape[0], h_BLD.shape[2]))


TAKE_LAST = register(OpDef("take_last", ("h", "length"), _infer, reference=_reference, decompose=_decompose))


def take_last(h: Tensor, length: Tensor) -> Tensor:
    """Return row length - 1 of every sequence.

    Args:
        h: Shape (B, L, D).
        length: i32 scalar (), in [1, L]; the caller checks it before anything runs.

    Returns:
        Shape (B, D). The op has no gradient.

    Raises:
        ShapeError: A shape does not fit.
        DtypeError: length is not i32.
    """
    return emit(TAKE_LAST, [h, length])[0]
