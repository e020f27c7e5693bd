"""rms_norm_forward and rms_norm_backward: golden values and the formula in float64."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainc.frontends.functional.rms_norm import rms_norm_backward, rms_norm_forward

GOLDEN = 1e-6  # float32 results of order one in another order of operations
EPS = 1e-5


def forward(x, w, eps):
    return w * x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)


def backward(dy, x, w, eps):
    r = 1.0 / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps)
    scaled = dy * w
    d_x = r * (scaled - x * r**2 * (scaled * x).mean(axis=-1, keepdims=True))
    return d_x, (dy * x * r).reshape(-1, x.shape[-1]).sum(axis=0)


def test_golden_values(ops):
    x, w, dy = (ops("rms", name) for name in ("x", "w", "dy"))
    np.testing.assert_allclose(rms_norm_forward(x, w, EPS), ops("rms", "y"), rtol=0, atol=GOLDEN)
    d_x, d_weight = rms_norm_backward(dy, x, w, EPS)
    np.testing.assert_allclose(d_x, ops("rms", "dx"), rtol=0, atol=GOLDEN)
    np.testing.assert_allclose(d_weight, ops("rms", "dw"), rtol=0, atol=GOLDEN)


@settings(deadline=None, max_examples=40)
@given(
    rows=st.integers(1, 200),
    width=st.sampled_from([6, 65]),
    scale=st.sampled_from([1e-3, 1.0, 1e4]),
    seed=st.integers(0, 99),
)
def test_the_formula(rows, width, scale, seed):
    """Sums of up to 65 terms in a row and 200 over rows: some 20 roundings of 2^-24 of the largest value."""
    rng = np.random.default_rng(seed)
    x, dy = ((s * rng.standard_normal((rows, width))).astype(np.float32) for s in (scale, 1.0))
    w = rng.standard_normal(width).astype(np.float32)
    exact = [a.astype(np.float64) for a in (dy, x, w)]
    eps = float(np.float32(EPS))
    wanted = [forward(exact[1], exact[2], eps), *backward(*exact, eps)]
    got = [rms_norm_forward(x, w, EPS), *rms_norm_backward(dy, x, w, EPS)]
    for a, b in zip(got, wanted, strict=True):
        assert a.dtype == np.float32
        np.testing.assert_allclose(a, b, rtol=0, atol=3e-6 * np.abs(b).max())


def test_rows_in_pieces_and_leading_dimensions():
    rng = np.random.default_rng(1)
    x, dy = rng.standard_normal((2, 5, 7, 6)).astype(np.float32)
    w = rng.standard_normal(6).astype(np.float32)
    y = rms_norm_forward(x, w, EPS)
    d_x, d_weight = rms_norm_backward(dy, x, w, EPS)
    assert y.shape == d_x.shape == x.shape
    assert d_weight.shape == w.shape
    for index in np.ndindex(5, 7):
        row = x[index][None]
        assert rms_norm_forward(row, w, EPS).tobytes() == y[index].tobytes()
        assert rms_norm_backward(dy[index][None], row, w, EPS)[0].tobytes() == d_x[index].tobytes()


ONES = np.ones((3, 6), np.float32)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: rms_norm_forward(ONES, np.ones(5, np.float32), EPS), ValueError, r"weight must have shape \(D,\)"),
        (lambda: rms_norm_forward(ONES[0], np.ones(6, np.float32), EPS), ValueError, "x must have shape"),
        (lambda: rms_norm_forward(ONES, ONES[0], -1.0), ValueError, "eps"),
        (lambda: rms_norm_forward(ONES, ONES[0], float("nan")), ValueError, "eps"),
        (lambda: rms_norm_forward(ONES, ONES[0], EPS, "identical"), NotImplementedError, "identical"),
        (lambda: rms_norm_backward(ONES[:2], ONES, ONES[0], EPS), ValueError, "dy must have the shape of x"),
        (lambda: rms_norm_backward(ONES, ONES, ONES[0], "small"), ValueError, "eps"),
    ],
)
def test_refusals_name_the_argument(call, error, text):
    with pytest.raises(error, match=text):
        call()
