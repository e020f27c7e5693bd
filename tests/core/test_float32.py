import math
from fractions import Fraction

import numpy as np
import pytest

from trainc.core.float32 import cos, fma, log


def exact_fma(a: float, b: float, c: float) -> float:
    """a * b + c as one correctly rounded float32, by rational arithmetic (binary search over float32 bits)."""
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if exact == 0:
        return 0.0
    low, high = 0, 0x7F800000  # the bits of positive float32 values are in the order of the values
    while high - low > 1:
        middle = (low + high) // 2
        if Fraction(float(np.uint32(middle).view(np.float32))) <= abs(exact):
            low = middle
        else:
            high = middle
    below = Fraction(float(np.uint32(low).view(np.float32)))
    above = Fraction(2**128) if high == 0x7F800000 else Fraction(float(np.uint32(high).view(np.float32)))
    twice = 2 * abs(exact) - below - above
    bits = high if twice > 0 or (twice == 0 and low & 1) else low
    return math.copysign(float(np.uint32(bits).view(np.float32)), exact)


def check(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    got = fma(a, b, c)
    wanted = [exact_fma(x, y, z) for x, y, z in zip(a, b, c, strict=True)]
    np.testing.assert_array_equal(got.astype(np.float64), wanted)


def test_fma_rounds_once_on_random_bits() -> None:
    bits = np.random.default_rng(0).integers(0, 2**32, (3, 1500), dtype=np.uint64).astype(np.uint32)
    a, b, c = bits.view(np.float32)
    with np.errstate(all="ignore"):
        usable = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    check(a[usable], b[usable], c[usable])


def test_fma_rounds_once_on_values_of_similar_size() -> None:
    rng = np.random.default_rng(1)
    check(*rng.standard_normal((3, 1500)).astype(np.float32))


def halfway_cases() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums on the middle of two float32 values, or a hair beside it that float64 cannot hold."""
    a, b, c = [], [], []
    for sign in (1.0, -1.0):
        for odd in (0, 1):  # (1 + 2**-12) * (1 + (odd + .5) * 2**-11) ends in half a float32 ulp
            for hair in (2.0**-60, 2.0**-100, 2.0**-140, 0.0):
                a.append(sign * (1 + 2.0**-12))
                b.append(1 + (2 * odd + 1) * 2.0**-12)
                c += [hair, -hair]
    return np.repeat(np.array(a, np.float32), 2), np.repeat(np.array(b, np.float32), 2), np.array(c, np.float32)


def test_fma_rounds_once_next_to_halfway() -> None:
    a, b, c = halfway_cases()
    check(a, b, c)
    # The naive form, float64 arithmetic rounded to float32, must fail here, or these cases test nothing.
    naive = (a.astype(np.float64) * b + c).astype(np.float32)
    assert (naive != fma(a, b, c)).any()


def test_fma_rounds_once_next_to_halfway_at_random() -> None:
    """Products whose 25 significant bits end in a one, plus a hair: all of them next to a middle."""
    rng = np.random.default_rng(2)
    a = (rng.integers(2**12, 2**13, 800) * 2 + 1).astype(np.float32)
    b = (rng.integers(2**11, 2**12, 800) * 2 + 1).astype(np.float32)
    c = (rng.choice([-1.0, 1.0, 0.0], 800) * 2.0 ** rng.integers(-140, -40, 800)).astype(np.float32)
    check(a, b, c)


def test_fma_rounds_once_among_subnormals() -> None:
    rng = np.random.default_rng(3)
    a = rng.standard_normal(800).astype(np.float32)
    b = (rng.standard_normal(800) * 2.0**-128).astype(np.float32)
    c = (rng.standard_normal(800) * 2.0**-135).astype(np.float32)
    check(a, b, c)


def test_fma_broadcasts_and_keeps_shapes() -> None:
    x = np.ones((2, 3), np.float32)
    assert fma(x, np.float32(2), np.ones(3, np.float32)).shape == (2, 3)
    assert fma(np.float32(2), np.float32(3), np.float32(4)).shape == ()
    assert fma(np.float32(2), np.float32(3), np.ones((4, 1), np.float32)).shape == (4, 1)


def test_fma_of_infinities_and_nan() -> None:
    inf, nan = np.float32(np.inf), np.float32(np.nan)
    assert fma(inf, np.float32(1), np.float32(1)) == np.inf
    assert np.isnan(fma(inf, np.float32(1), -inf))
    assert np.isnan(fma(nan, np.float32(1), np.float32(1)))
    assert fma(np.float32(3e38), np.float32(3e38), np.float32(0)) == np.inf


@pytest.mark.parametrize(("name", "low", "high"), [("log", 2.0**-24, 1.0), ("cos", 0.0, 2 * math.pi)])
def test_log_and_cos_are_close_to_the_real_functions(name: str, low: float, high: float) -> None:
    x = np.linspace(low, high, 20011).astype(np.float32)
    x[-1] = np.float32(1.0) if name == "log" else x[-1]
    got = {"log": log, "cos": cos}[name](x)
    wanted = getattr(np, name)(x.astype(np.float64))
    # Cephes states a peak relative error of 8e-8 for logf, and the same as an absolute error for cosf; twice that.
    np.testing.assert_allclose(
        got, wanted, rtol=1.6e-7 if name == "log" else 0, atol=1e-30 if name == "log" else 1.6e-7
    )


def test_log_of_one_is_zero() -> None:
    assert log(np.ones(1, np.float32)) == 0.0
