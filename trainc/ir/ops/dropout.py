"""dropout: elements set to zero at random, the rest scaled up; the mask is a function of a key and of no state."""

from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.philox import drop_probability, dropout_scale, keep_mask
from trainc.ir import scalar
from trainc.ir.builder import emit
from trainc.ir.ops.expect import expect_dtype, expect_float, expect_shape
from trainc.ir.primitives import barrier, elementwise, random_bits
from trainc.ir.registry import Call, OpDef, register
from trainc.ir.scalar import Scalar
from trainc.ir.tensor import Aval, Tensor

Array = npt.NDArray[Any]

KEY_WORDS = 5


def _infer(x: Aval, key: Aval, *, p: float) -> list[Aval]:
    expect_float("x", x)
    expect_dtype("key", key, "i32")
    expect_shape("key", key, (KEY_WORDS,))
    drop_probability(p)
    return [x]


def _reference(x: Array, key: npt.NDArray[np.int32], *, p: float) -> Array:
    seed_low, seed_high, stream, offset_low, offset_high = (int(word) & 0xFFFFFFFF for word in key)
    kept = keep_mask(seed_low | seed_high << 32, stream, x.size, p, offset_low | offset_high << 32)
    out = np.zeros_like(x)
    out[kept.reshape(x.shape)] = x[kept.reshape(x.shape)] * x.dtype.type(dropout_scale(p))
    return out


def _decompose(x: Tensor, key: Tensor, *, p: float) -> Tensor:
    # unit = (word >> 8) * 2^-24 >= p, compared as integers: p * 2^24 is exact, so no rounding can move the border.
    threshold = ceil(float(drop_probability(p)) * 2.0**24)
    scale = float(dropout_scale(p))

    def element(e: Scalar, word: Scalar) -> Scalar:
        return scalar.select((word >> 8) >= threshold, e * scale, 0.0)

    return elementwise(element, x, random_bits(key, x))


def _backward(call: Call, d_results: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    (d_out,) = d_results
    assert d_out is not None
    return emit(DROPOUT_GRAD, [d_out, call.operands[1]], **call.attributes)[0], None


DROPOUT = register(
    OpDef(
        "dropout",
        ("x", "key"),
        _infer,
        attributes=("p",),
        reference=_reference,
        decompose=_decompose,
        backward=_backward,
    )
)


def _decompose_grad(d_out: Tensor, key: Tensor, *, p: float) -> Tensor:
    # Behind its own barrier the key is another value, so the forward's words are drawn again rather than kept.
    return _decompose(d_out, barrier(key), p=p)


DROPOUT_GRAD = register(OpDef("dropout_grad", ("d_out", "key"), _infer, attributes=("p",), decompose=_decompose_grad))


def dropout(x: Tensor, key: Tensor, p: float) -> Tensor:
    """Return x with a share p of its elements at +0.0 and the rest times 1/(1-p) (spec section 5).

    Args:
        x: Any shape, float. Element i in row-major order uses the stream's element offset + i.
        key: i32 (5,): seed low and high words, stream, element offset low and high words.
        p: Drop probability in [0, 1), rounded to float32.

    Returns:
        The shape of x. The gradient draws the same mask again from the key.

    Raises:
        ShapeError: The key does not have 5 words.
        DtypeError: x is not float or the key is not i32.
        UsageError: p is out of its range.
    """
    return emit(DROPOUT, [x, key], p=float(p))[0]
