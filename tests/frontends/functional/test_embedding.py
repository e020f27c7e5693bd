"""embedding_forward and embedding_backward: golden values, bits of the ascending sum, refusals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainc.frontends.functional.embedding import embedding_backward, embedding_forward


def ascending_sums(dy, ids, vocab):
    sums = np.zeros((vocab, dy.shape[1]), np.float32)
    for row, index in zip(dy, ids, strict=True):
        sums[index] += row
    return sums


def test_golden_values(ops):
    got = embedding_backward(ops("rms", "dy"), np.array([1, 3, 1, 0]), 5)
    np.testing.assert_array_equal(got, ops("embedding_backward ids=[1,3,1,0] vocab5 dy=rms.dy"))


@settings(deadline=None, max_examples=40)
@given(rows=st.integers(1, 300), used=st.integers(1, 5), seed=st.integers(0, 99))
def test_equal_ids_are_added_in_ascending_order(rows, used, seed):
    """Float32 sums in another order differ in their last bits: equal bits show the order."""
    rng = np.random.default_rng(seed)
    dy, ids = rng.standard_normal((rows, 6)).astype(np.float32), rng.integers(0, used, rows)
    got = embedding_backward(dy, ids, 5)
    assert got.tobytes() == ascending_sums(dy, ids, 5).tobytes()


def test_a_wide_table():
    rng = np.random.default_rng(1)
    dy, ids = rng.standard_normal((700, 130)).astype(np.float32), rng.integers(0, 257, 700)
    assert embedding_backward(dy, ids, 257).tobytes() == ascending_sums(dy, ids, 257).tobytes()


def test_rows_are_copied():
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    got = embedding_forward(table, np.array([3, 0, 3], np.int16))
    np.testing.assert_array_equal(got, table[[3, 0, 3]])
    got[:] = 0.0
    assert table[3, 0] == 9.0


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda t, d: embedding_forward(t, np.array([0, 4])), ValueError, r"ids\[1\] must be at least 0 and below 4"),
        (lambda t, d: embedding_forward(t, np.array([-1])), ValueError, r"ids\[0\]"),
        (lambda t, d: embedding_forward(t, np.array([0.0])), ValueError, "ids must hold integers"),
        (lambda t, d: embedding_forward(t, np.array([[0]])), ValueError, r"ids must have shape \(N,\)"),
        (lambda t, d: embedding_forward(t, np.zeros(0, np.int32)), ValueError, "ids must have at least one element"),
        (lambda t, d: embedding_forward(t[0], np.array([0])), ValueError, r"weight must have shape \(V, D\)"),
        (lambda t, d: embedding_backward(d, np.array([0, 1]), 5), ValueError, r"one for each row of dy"),
        (lambda t, d: embedding_backward(d, np.array([0, 1, 5]), 5), ValueError, r"ids\[2\]"),
        (lambda t, d: embedding_backward(d, np.array([0, 1, 2]), 0), ValueError, "vocab"),
        (lambda t, d: embedding_backward(d, np.array([0, 1, 2]), 2.0), ValueError, "vocab"),
        (lambda t, d: embedding_backward(d, np.array([0, 1, 2]), 5, "identical"), NotImplementedError, "identical"),
        (lambda t, d: embedding_forward(t, np.array([0]), "bogus"), ValueError, "numeric_mode"),
    ],
)
def test_refusals_name_the_argument(call, error, text):
    with pytest.raises(error, match=text):
        call(np.ones((4, 3), np.float32), np.ones((3, 6), np.float32))
