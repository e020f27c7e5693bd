"""cached_attention and cache_write: decomposition, agreement with whole-sequence attention, refusals."""

import numpy as np
import pytest

from tests.ir.gradcheck import check_forward, run, traced
from trainc.core.errors import DtypeError, ShapeError, UnsupportedError
from trainc.ir.backward import backward
from trainc.ir.ops.attention import attention
from trainc.ir.ops.cached_attention import cache_write, cached_attention
from trainc.ir.primitives import fill
from trainc.ir.tensor import Aval

I32 = Aval((), "i32")


@pytest.mark.parametrize(("tokens", "position", "capacity"), [(1, 0, 1), (1, 6, 7), (3, 0, 8), (5, 2, 9), (65, 4, 70)])
@pytest.mark.parametrize(("batch", "heads", "kv_heads", "size"), [(1, 4, 2, 6), (2, 2, 2, 16), (1, 3, 1, 6)])
def test_attention_equals_the_reference(tokens, position, capacity, batch, heads, kv_heads, size):
    rng = np.random.default_rng(tokens)
    caches = rng.standard_normal((2, batch, kv_heads, capacity, size))
    check_forward(cached_attention, [rng.standard_normal((batch, tokens, heads, size)), *caches, np.int32(position)])


@pytest.mark.parametrize(("position", "length", "capacity"), [(0, 5, 5), (3, 5, 9), (3, 2, 9), (8, 1, 9), (4, 0, 9)])
def test_write_equals_the_reference(position, length, capacity):
    rng = np.random.default_rng(length)
    cache, rows = rng.standard_normal((2, 3, capacity, 4)), rng.standard_normal((2, 5, 3, 4))
    (new,) = check_forward(cache_write, [cache, rows, np.int32(position), np.int32(length)], tolerance=0.0)
    np.testing.assert_array_equal(new[:, :, position : position + length], rows[:, :length].swapaxes(1, 2))


def test_one_row_is_written_where_it_belongs():
    rng = np.random.default_rng(1)
    cache, row = rng.standard_normal((2, 3, 9, 4)), rng.standard_normal((2, 1, 3, 4))
    check_forward(cache_write, [cache, row, np.int32(8), np.int32(1)], tolerance=0.0)


@pytest.mark.parametrize("chunks", [[7], [1] * 7, [3, 1, 3]])
def test_cached_steps_equal_attention_over_the_whole_sequence(chunks):
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 7, heads, 6)) for heads in (4, 2, 2))
    whole, _ = run(attention, [q, k, v], primitives=False)

    def step(q, k, v, keys, values, position, length):
        new = [cache_write(keys, k, position, length), cache_write(values, v, position, length)]
        return cached_attention(q, *new, position), *new

    keys = values = np.zeros((2, 2, 10, 6))
    start, outs = 0, []
    for length in chunks:
        rows = [x[:, start : start + length] for x in (q, k, v)]
        out, keys, values = run(step, [*rows, keys, values, np.int32(start), np.int32(length)])
        outs.append(out)
        start += length
    # Sums of at most 7 terms in another order, in float64.
    np.testing.assert_allclose(np.concatenate(outs, axis=1), whole, rtol=0, atol=1e-14)


def test_later_cache_rows_change_nothing():
    rng = np.random.default_rng(1)
    q, caches = rng.standard_normal((1, 3, 4, 6)), rng.standard_normal((2, 1, 2, 9, 6))
    (before,) = run(cached_attention, [q, *caches, np.int32(2)])
    changed = caches.copy()
    changed[:, :, :, 4] *= -30.0  # seen by the last token only
    changed[:, :, :, 5:] = 1e3
    (after,) = run(cached_attention, [q, *changed, np.int32(2)])
    np.testing.assert_array_equal(after[:, :2], before[:, :2])
    assert np.all(after[:, 2] != before[:, 2])


def test_there_is_no_gradient():
    cache = Aval((1, 2, 9, 6))
    with pytest.raises(UnsupportedError, match=r"train\.cached_attention has no backward rule"):
        traced(
            lambda q, k, v, p: backward(cached_attention(q, k, v, p), [q], fill(1.0, q.shape)),
            [Aval((1, 3, 4, 6)), cache, cache, I32],
        )


@pytest.mark.parametrize(
    ("q", "cache", "position", "error", "message"),
    [
        ((1, 3, 4, 6), (1, 3, 9, 6), I32, ShapeError, "multiple of the 3"),
        ((1, 3, 4, 6), (2, 2, 9, 6), I32, ShapeError, "batch and head size"),
        ((1, 3, 4, 6), (1, 2, 9, 6), Aval((1,), "i32"), ShapeError, r"position of shape \(\)"),
        ((1, 3, 4, 6), (1, 2, 9, 6), Aval((), "f32"), DtypeError, "position of dtype i32"),
    ],
)
def test_wrong_operands_of_attention_are_refused(q, cache, position, error, message):
    with pytest.raises(error, match=rf"train\.cached_attention\(q f32.*{message}"):
        traced(cached_attention, [Aval(q), Aval(cache), Aval(cache), position])


@pytest.mark.parametrize(
    ("cache", "rows", "length", "error", "message"),
    [
        (Aval((1, 2, 4, 6)), Aval((1, 5, 2, 6)), I32, ShapeError, "T <= 4"),
        (Aval((1, 2, 9, 6)), Aval((1, 5, 3, 6)), I32, ShapeError, "for a cache"),
        (Aval((1, 2, 9, 6)), Aval((5, 2, 6)), I32, ShapeError, r"expected cache \(B, KV, M, E\)"),
        (Aval((1, 2, 9, 6)), Aval((1, 5, 2, 6), "f64"), I32, DtypeError, "one dtype"),
        (Aval((1, 2, 9, 6)), Aval((1, 5, 2, 6)), Aval((2,), "i32"), ShapeError, "length of shape"),
    ],
)
def test_wrong_operands_of_write_are_refused(cache, rows, length, error, message):
    with pytest.raises(error, match=rf"train\.cache_write\(cache f32.*{message}"):
        traced(cache_write, [cache, rows, I32, length])
