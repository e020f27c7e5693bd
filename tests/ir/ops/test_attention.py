"""attention: decomposition, gradients, causality, memory shape and refusals."""

import numpy as np
import pytest

from tests.ir.gradcheck import check_forward, check_gradients, run, traced
from trainc.core.errors import DtypeError, ShapeError
from trainc.ir.backward import backward
from trainc.ir.mlir import entry_block
from trainc.ir.ops.attention import attention
from trainc.ir.primitives import fill
from trainc.ir.tensor import Aval, Tensor
from trainc.passes.decompose import Decompose

LENGTHS = [1, 2, 63, 64, 65, 131]


def draw(rng, length, *, batch=1, heads=4, kv_heads=2, size=6):
    shapes = [(batch, length, heads, size), (batch, length, kv_heads, size), (batch, length, kv_heads, size)]
    return [rng.standard_normal(shape) for shape in shapes]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("batch", "heads", "kv_heads", "size"), [(1, 4, 2, 6), (2, 2, 2, 16), (1, 3, 1, 6)])
def test_decomposition_equals_the_reference(length, batch, heads, kv_heads, size):
    inputs = draw(np.random.default_rng(length), length, batch=batch, heads=heads, kv_heads=kv_heads, size=size)
    check_forward(attention, inputs)


def test_a_long_sequence_takes_larger_blocks():
    check_forward(attention, draw(np.random.default_rng(0), 1030, heads=1, kv_heads=1, size=2))


@pytest.mark.parametrize("length", LENGTHS[1:])
@pytest.mark.parametrize(("heads", "kv_heads", "size"), [(4, 2, 6), (2, 2, 16)])
def test_gradients(length, heads, kv_heads, size):
    # Cotangents reach the output, the log-sum-exp, and each of them alone.
    rng = np.random.default_rng(length)
    inputs = draw(rng, length, heads=heads, kv_heads=kv_heads, size=size)
    check_gradients(attention, inputs, differentiable=[0, 1, 2], rng=rng)


def test_gradients_of_one_token():
    # Its weight is 1 whatever the score: d_q and d_k are zero but for the rounding of two equal sums of 6 terms.
    rng = np.random.default_rng(0)
    inputs = [*draw(rng, 1), rng.standard_normal((1, 1, 4, 6))]
    d_q, d_k, d_v = run(lambda q, k, v, d: backward(attention(q, k, v)[0], [q, k, v], d), inputs)
    assert max(np.abs(d_q).max(), np.abs(d_k).max()) < 1e-14
    np.testing.assert_allclose(d_v, inputs[3].reshape(1, 1, 2, 2, 6).sum(axis=3), rtol=1e-15)


@pytest.mark.parametrize("changed", [1, 63, 64, 130])
def test_a_token_never_changes_earlier_outputs(changed):
    rng = np.random.default_rng(changed)
    inputs = draw(rng, 131)
    before = run(attention, inputs)
    for x in inputs:
        x[:, changed:] = 50.0 * rng.standard_normal(x[:, changed:].shape)
    after = run(attention, inputs)
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(new[:, :changed], old[:, :changed])
        assert np.all(new[:, changed] != old[:, changed])


def test_large_scores_stay_finite_in_float32():
    # Scores of several hundred overflow exp. One leads each row by more than exp can bridge, so weights are 0 or 1,
    # and with small whole numbers as values every later sum is exact.
    eye = np.eye(70, dtype=np.float32)[None, :, None, :]
    values = np.random.default_rng(0).integers(-8, 8, (1, 70, 1, 70)).astype(np.float32)
    inputs = [200.0 * eye, 200.0 * eye, values]

    def gradients(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        out, _ = attention(q, k, v)
        return (out, *backward(out, [q, k, v], fill(1.0, out.shape)))

    out, d_q, d_k, d_v = run(gradients, inputs, dtype=np.float32)
    assert out.dtype == np.float32
    np.testing.assert_array_equal(out, values)
    np.testing.assert_array_equal(d_v, np.ones_like(d_v))
    np.testing.assert_array_equal(np.stack([d_q, d_k]), 0.0)


def test_nothing_of_size_length_squared_is_kept():
    length = 256
    program = traced(
        lambda q, k, v: backward(attention(q, k, v)[0], [q, k, v], fill(1.0, q.shape)),
        [Aval((1, length, 1, 4)), Aval((1, length, 1, 4)), Aval((1, length, 1, 4))],
    )
    kept = [r.type.shape for op in entry_block(program.function("f")).operations for r in op.results]
    assert max(np.prod(shape) for shape in kept) == length * 4
    Decompose().run(program)
    block_sizes = [np.prod(r.type.shape) for op in entry_block(program.function("f")).operations for r in op.results]
    assert max(block_sizes) == length * 64


@pytest.mark.parametrize(
    ("q", "k", "v", "error", "message"),
    [
        ((1, 4, 4, 6), (1, 4, 3, 6), (1, 4, 3, 6), ShapeError, "multiple of the 3"),
        ((1, 4, 4, 6), (1, 5, 2, 6), (1, 5, 2, 6), ShapeError, "one length"),
        ((1, 4, 4, 6), (1, 4, 2, 8), (1, 4, 2, 8), ShapeError, "batch and head size"),
        ((1, 4, 4, 6), (1, 4, 2, 6), (1, 4, 4, 6), ShapeError, "k and v of one shape"),
        ((4, 4, 6), (1, 4, 2, 6), (1, 4, 2, 6), ShapeError, "rank 4"),
    ],
)
def test_wrong_shapes_are_refused(q, k, v, error, message):
    with pytest.raises(error, match=rf"train\.attention\(q f32.*{message}"):
        traced(attention, [Aval(q), Aval(k), Aval(v)])


def test_wrong_dtypes_are_refused():
    shape = (1, 2, 2, 4)
    for dtypes in (("f32", "f64", "f64"), ("i32", "i32", "i32")):
        with pytest.raises(DtypeError, match=r"train\.attention.*one float dtype"):
            traced(attention, [Aval(shape, dtype) for dtype in dtypes])
