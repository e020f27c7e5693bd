"""rope: rotary position embedding of attention queries and keys, pairing each component with the one half a head on.

Shapes: B batch, L length, H heads, E head dim, J = 2 halves of a head, F = E/2 pairs, M positions of a table.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.errors import ShapeError
from trainc.ir import scalar
from trainc.ir.builder import emit
from trainc.ir.ops.expect import expect_dtype, expect_float, expect_rank, expect_shape
from trainc.ir.primitives import constant, gather, map_, reshape, slice_axis
from trainc.ir.registry import Call, OpDef, register
from trainc.ir.scalar import Scalar
from trainc.ir.tensor import Aval, Tensor

Array = npt.NDArray[Any]

BASE = 10000.0


def _infer(x: Aval, cos: Aval, sin: Aval) -> list[Aval]:
    expect_float("x", x)
    expect_rank("x", x, 4, "(B, L, H, E)")
    if x.shape[3] % 2:
        raise ShapeError(f"expected an even head dim (the last of x), got {x.shape[3]}")
    for name, table in (("cos", cos), ("sin", sin)):
        expect_dtype(name, table, x.dtype)
        expect_shape(name, table, (x.shape[1], x.shape[3] // 2))
    return [x]


def _reference(x_BLHE: Array, cos_LF: Array, sin_LF: Array) -> Array:
    out = np.empty_like(x_BLHE)
    pairs = x_BLHE.shape[3] // 2
    for position in range(x_BLHE.shape[1]):
        for pair in range(pairs):
            rotation = complex(cos_LF[position, pair], sin_LF[position, pair])
            turned = (x_BLHE[:, position, :, pair] + 1j * x_BLHE[:, position, :, pair + pairs]) * rotation
            out[:, position, :, pair] = turned.real
            out[:, position, :, pair + pairs] = turned.imag
    return out


def _rotate(x_BLHE: Tensor, cos_LF: Tensor, sin_LF: Tensor, direction: float) -> Tensor:
    """Rotate every pair by its angle (direction 1) or back (direction -1)."""
    batch, length, heads, width = x_BLHE.shape
    x_BLHJF = reshape(x_BLHE, (batch, length, heads, 2, width // 2))
    first, second = (reshape(slice_axis(x_BLHJF, 3, half, 1), (batch, length, heads, width // 2)) for half in (0, 1))

    def element(x: Scalar, a: Scalar, b: Scalar, cos: Scalar, sin: Scalar) -> Scalar:
        other = scalar.select(scalar.equal(scalar.index(3), 0), b * -direction, a * direction)
        return x * cos + other * sin

    turned = map_("blhjf,blhf,blhf,lf,lf->blhjf", element, x_BLHJF, first, second, cos_LF, sin_LF)
    return reshape(turned, x_BLHE.shape)


def _backward(call: Call, d_results: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    _, cos, sin = call.operands
    (d_out,) = d_results
    assert d_out is not None
    return emit(ROPE_GRAD, [d_out, cos, sin])[0], None, None


ROPE = register(
    OpDef(
        "rope",
        ("x", "cos", "sin"),
        _infer,
        reference=_reference,
        decompose=lambda x, cos, sin: _rotate(x, cos, sin, 1.0),
        backward=_backward,
    )
)

ROPE_GRAD = register(
    OpDef("rope_grad", ("d_out", "cos", "sin"), _infer, decompose=lambda d, cos, sin: _rotate(d, cos, sin, -1.0))
)


def _angles(positions: int, width: int) -> npt.NDArray[np.float64]:
    """Return position * BASE^(-2i/width) of shape (positions, width/2)."""
    frequencies = BASE ** (-2.0 * np.arange(width // 2) / width)
    return np.arange(positions)[:, None] * frequencies


def rope(x: Tensor, positions: Tensor | None = None, max_positions: int | None = None) -> Tensor:
    """Rotate pairs (e, e + E/2) of every head by position * 10000^(-2e/E) (spec section 3).

    Args:
        x: Shape (B, L, H, E), float, E even.
        positions: i32 (L,), absolute positions in [0, max_positions), the caller checks them; None means 0..L-1.
        max_positions: Number of positions the program can meet; needed with `positions` only.

    Returns:
        The shape of x. Its gradient is the rotation by the opposite angles.

    Raises:
        ShapeError: x is not of rank 4, E is odd, positions are not (L,), or only one of `positions` and
            `max_positions` is given.
        DtypeError: x is not float or positions are not i32.
    """
    if (positions is None) != (max_positions is None):
        raise ShapeError("train.rope: expected positions and max_positions together, got one of them")
    if x.rank != 4:
        raise ShapeError(f"train.rope: expected x (B, L, H, E), got shape {x.shape}")
    angles = _angles(max_positions or x.shape[1], x.shape[3])
    tables = [constant(table, x.dtype) for table in (np.cos(angles), np.sin(angles))]
    if positions is not None:
        tables = [gather(table, positions, axis=0) for table in tables]
    return emit(ROPE, [x, *tables])[0]
