"""mlp_inference_sessions: the formula, sessions of any size, refusals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainc.frontends.functional.mlp import mlp_inference_sessions

RNG = np.random.default_rng(0)
WEIGHTS = tuple(RNG.standard_normal(shape).astype(np.float32) for shape in ((5, 4), (5,), (3, 5), (3,)))


def expected(x):
    w1, b1, w2, b2 = (w.astype(np.float64) for w in WEIGHTS)
    return np.maximum(x @ w1.T + b1, 0.0) @ w2.T + b2


@settings(deadline=None, max_examples=30)
@given(sizes=st.lists(st.integers(0, 40), max_size=5), seed=st.integers(0, 99))
def test_sessions_one_after_the_other(sizes, seed):
    """Sums of nine terms of order one: a few roundings of values up to 30."""
    rng = np.random.default_rng(seed)
    sessions = [rng.standard_normal((rows, 4)).astype(np.float32) for rows in sizes]
    got = mlp_inference_sessions(sessions, *WEIGHTS)
    assert got.dtype == np.float32
    assert got.shape == (sum(sizes), 3)
    wanted = [expected(x) for x in sessions]
    np.testing.assert_allclose(got, np.concatenate([np.empty((0, 3)), *wanted]), rtol=0, atol=2e-5)


ONE = [np.ones((2, 4), np.float32)]


@pytest.mark.parametrize(
    ("inputs", "change", "error", "text"),
    [
        (ONE[0], {}, TypeError, "inputs must be a list of arrays"),
        ([*ONE, np.ones((2, 5), np.float32)], {}, ValueError, r"inputs\[1\] must have shape .* width 4"),
        ([np.ones(4, np.float32)], {}, ValueError, r"inputs\[0\] must have shape"),
        ([np.ones((2, 4))], {}, TypeError, r"inputs\[0\] must be a float32 array"),
        ([np.ones((4, 2), np.float32).T], {}, ValueError, r"inputs\[0\] must be C-contiguous"),
        (ONE, {0: np.ones((5, 3), np.float32)}, ValueError, r"inputs\[0\] must have shape .* width 3"),
        (ONE, {1: np.ones(4, np.float32)}, ValueError, r"bias1 must have shape \(hidden,\)"),
        (ONE, {2: np.ones((3, 4), np.float32)}, ValueError, r"weight2 must have shape .* 5 columns"),
        (ONE, {3: np.ones((3, 1), np.float32)}, ValueError, r"bias2 must have shape \(outputs,\)"),
        (ONE, {4: "identical"}, NotImplementedError, "identical"),
    ],
)
def test_refusals_name_the_argument(inputs, change, error, text):
    arguments = [change.get(i, good) for i, good in enumerate((*WEIGHTS, None))]
    with pytest.raises(error, match=text):
        mlp_inference_sessions(inputs, *arguments)
