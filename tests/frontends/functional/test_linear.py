"""linear_forward and linear_backward: golden values, the bits of a serial sum, refusals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainc.core.float32 import fma
from trainc.frontends.functional.linear import linear_backward, linear_forward

GOLDEN = 1e-6  # float32 results of order one in another order of operations


def serial_product(a_KM, b_KN):
    """The transposed product a.T @ b as one chain of fused multiply-adds a result, k ascending from +0.0."""
    total = np.zeros((a_KM.shape[1], b_KN.shape[1]), np.float32)
    for a_M, b_N in zip(a_KM, b_KN, strict=True):
        total = fma(a_M[:, None], b_N[None, :], total)
    return total


def test_golden_values(ops):
    a, w, dc = ops("rms", "x"), ops("linear", "w"), ops("linear", "dc")
    np.testing.assert_allclose(linear_forward(a, w), ops("linear", "c"), rtol=0, atol=GOLDEN)
    d_a, d_weight = linear_backward(dc, a, w)
    np.testing.assert_allclose(d_a, ops("linear", "da"), rtol=0, atol=GOLDEN)
    np.testing.assert_allclose(d_weight, ops("linear", "dw"), rtol=0, atol=GOLDEN)


@settings(deadline=None, max_examples=40)
@given(rows=st.integers(1, 150), sizes=st.sampled_from([(6, 3), (33, 17)]), seed=st.integers(0, 99))
def test_a_product_is_one_serial_sum(rows, sizes, seed):
    """The error bound of every product here follows: k roundings of 2^-24 of the running sum."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((rows, sizes[0])).astype(np.float32)
    w, dc = (
        rng.standard_normal(sizes[::-1]).astype(np.float32),
        rng.standard_normal((rows, sizes[1])).astype(np.float32),
    )
    d_a, d_weight = linear_backward(dc, a, w)
    for got, left, right in ((linear_forward(a, w), a.T, w.T), (d_a, dc.T, w), (d_weight, dc, a)):
        wanted = serial_product(left, right)
        exact = left.T.astype(np.float64) @ right
        np.testing.assert_allclose(
            got, exact, rtol=0, atol=len(left) * 2.0**-24 * (np.abs(left.T) @ np.abs(right)).max()
        )
        assert got.tobytes() == wanted.tobytes()


def test_leading_dimensions():
    rng = np.random.default_rng(1)
    a, w = rng.standard_normal((2, 4, 6)).astype(np.float32), rng.standard_normal((3, 6)).astype(np.float32)
    c = linear_forward(a, w)
    assert c.shape == (2, 4, 3)
    d_a, d_weight = linear_backward(c, a, w)
    assert (d_a.shape, d_weight.shape) == (a.shape, w.shape)
    flat = linear_backward(c.reshape(8, 3), a.reshape(8, 6), w)
    assert (d_a.tobytes(), d_weight.tobytes()) == (flat[0].tobytes(), flat[1].tobytes())


A, W, DC = (np.ones(shape, np.float32) for shape in ((4, 6), (3, 6), (4, 3)))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: linear_forward(A, W[:, :5].copy()), ValueError, r"weight must have shape \(N, K\) with 6 columns"),
        (lambda: linear_forward(A[0], W), ValueError, "a must have shape"),
        (lambda: linear_forward(A, W[0]), ValueError, "weight must have shape"),
        (lambda: linear_forward(A, W.T), ValueError, "weight must be C-contiguous"),
        (lambda: linear_forward(A, W, "identical"), NotImplementedError, "identical"),
        (lambda: linear_backward(DC[:3], A, W), ValueError, r"dc must have shape .* = \(4, 3\), got \(3, 3\)"),
        (lambda: linear_backward(A, A, W), ValueError, "dc must have shape"),
        (lambda: linear_backward(DC, A, W, "bogus"), ValueError, "numeric_mode"),
    ],
)
def test_refusals_name_the_argument(call, error, text):
    with pytest.raises(error, match=text):
        call()
