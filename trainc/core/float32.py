"""Correctly rounded float32 building blocks on the host: fused multiply-add, logarithm and cosine.

NumPy has no fma, and a platform's libm differs from the next one in the last bit. Draws must have the same
bits everywhere (spec section 5), so both are built here from operations that IEEE 754 pins down.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]

_HALFWAY = np.uint64(1 << 28)  # the 29 bits that float64 has beyond float32, exactly between two float32 values
_TAIL = np.uint64((1 << 29) - 1)
_MIN_NORMAL = 2.0**-126

_LOG_POLY = tuple(
    np.float32(c)
    for c in (
        7.0376836292e-2,
        -1.1514610310e-1,
        1.1676998740e-1,
        -1.2420140846e-1,
        1.4249322787e-1,
        -1.6668057665e-1,
        2.0000714765e-1,
        -2.4999993993e-1,
        3.3333331174e-1,
    )
)
_LN2_LOW = np.float32(-2.12194440e-4)
_LN2_HIGH = np.float32(0.693359375)
_SQRT_HALF = np.float32(0.7071067811865476)

_FOUR_OVER_PI = np.float32(1.27323954473516)
_QUARTER_PI = (np.float32(0.78515625), np.float32(2.4187564849853515625e-4), np.float32(3.77489497744594108e-8))
_SIN_POLY = (np.float32(-1.9515295891e-4), np.float32(8.3321608736e-3), np.float32(-1.6666654611e-1))
_COS_POLY = (np.float32(2.443315711809948e-5), np.float32(-1.388731625493765e-3), np.float32(4.166664568298827e-2))
_HALF = np.float32(0.5)
_ONE = np.float32(1.0)


@np.errstate(over="ignore", invalid="ignore")  # infinities and nan come out as the fused instruction gives them
def fma(a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike) -> FloatArray:
    """Returns `a * b + c` with one rounding, as the fused instruction of a processor does.

    Args:
        a: float32 array or scalar.
        b: float32 array or scalar, broadcast against `a`.
        c: float32 array or scalar, broadcast against `a * b`.

    Returns:
        float32 array of the broadcast shape (0-d for scalars).
    """
    # The product of two float32 values is exact in float64. The float64 sum rounds once, the step down to
    # float32 a second time; that second rounding can only go wrong when the sum lies exactly half way
    # between two float32 values, or when the result is subnormal and the half way points lie elsewhere.
    product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
    addend = np.asarray(c, np.float64)
    total = np.atleast_1d(product + addend)
    doubtful = (total.view(np.uint64) & _TAIL) == _HALFWAY
    doubtful |= np.abs(total) < _MIN_NORMAL
    if doubtful.any():
        total = np.atleast_1d(_sum_rounded_to_odd(product, addend))
    return total.astype(np.float32).reshape(np.broadcast_shapes(product.shape, addend.shape))


def _sum_rounded_to_odd(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns the float64 sum that keeps a trace of what was rounded away in its last bit.

    A value rounded to odd can be rounded again, to any format at least two bits narrower, without error.
    """
    total = np.asarray(x + y)
    part = total - x
    error = (x - (total - part)) + (y - part)  # exact: two-sum
    bits = total.view(np.int64)
    outwards = np.where((error > 0) == (total > 0), 1, -1)
    inexact = (error > 0) | (error < 0)
    odd = bits + np.where(inexact & (bits & 1 == 0), outwards, 0)
    return odd.view(np.float64)


def _horner(x: FloatArray, coefficients: tuple[Any, ...]) -> FloatArray:
    value = fma(x, coefficients[0], coefficients[1])
    for coefficient in coefficients[2:]:
        value = fma(value, x, coefficient)
    return value


def log(x: FloatArray) -> FloatArray:
    """Returns the natural logarithm of finite, positive, normal float32 values (Cephes single precision).

    Args:
        x: float32 array.

    Returns:
        float32 array of the same shape, the same bits on every machine.
    """
    mantissa, exponent = np.frexp(x)
    small = mantissa < _SQRT_HALF
    t = np.where(small, mantissa + mantissa, mantissa) - _ONE
    e = (exponent - small).astype(np.float32)
    z = t * t
    y = (t * z) * _horner(t, _LOG_POLY)
    y = fma(e, _LN2_LOW, y)
    y = fma(z, -_HALF, y)
    return fma(e, _LN2_HIGH, t + y)


def cos(x: FloatArray) -> FloatArray:
    """Returns the cosine of float32 values of moderate size, below about 8000 (Cephes single precision).

    Args:
        x: float32 array.

    Returns:
        float32 array of the same shape, the same bits on every machine.
    """
    angle = np.abs(x)
    octant = (angle * _FOUR_OVER_PI).astype(np.int32)
    octant += octant & 1
    j = octant.astype(np.float32)
    for part in _QUARTER_PI:
        angle = fma(j, -part, angle)
    octant &= 7
    z = angle * angle
    by_sine = fma(angle * z, _horner(z, _SIN_POLY), angle)
    by_cosine = fma(z * z, _horner(z, _COS_POLY), fma(z, -_HALF, _ONE))
    value = np.where((octant & 3) == 2, by_sine, by_cosine)
    # Octants 2 and 4 negate; 6 negates twice.
    return np.where((octant == 2) | (octant == 4), -value, value)
