import numpy as np
import pytest

from tests.ir.gradcheck import check_forward, check_gradients, run, traced
from trainc.core.errors import DtypeError, ShapeError
from trainc.ir.backward import backward
from trainc.ir.ops.embedding import embedding
from trainc.ir.tensor import Aval


def case(rng, vocab, width, *shape):
    return [rng.standard_normal((vocab, width)), rng.integers(0, vocab, shape).astype(np.int32)]


@pytest.mark.parametrize("shape", [(1,), (3,), (1, 1), (2, 65)])
def test_rows_and_gradient(shape):
    rng = np.random.default_rng(1)
    inputs = case(rng, 7, 5, *shape)
    (out,) = check_forward(embedding, inputs)
    np.testing.assert_array_equal(out, inputs[0][inputs[1]])
    check_gradients(embedding, inputs, differentiable=[0], rng=rng)


def test_gradient_sums_repeated_ids_and_leaves_absent_rows_at_zero():
    ids = np.array([[2, 2, 0], [2, 0, 4]], np.int32)
    d_out = np.arange(12.0).reshape(2, 3, 2)
    (d_weight,) = run(
        lambda w, i, d: backward(embedding(w, i), [w], d),
        [np.zeros((5, 2)), ids, d_out],
    )
    np.testing.assert_array_equal(d_weight, [[12.0, 14.0], [0.0, 0.0], [8.0, 11.0], [0.0, 0.0], [10.0, 11.0]])


def test_refusals_name_the_op():
    with pytest.raises(ShapeError, match=r"train\.embedding.*weight \(V, D\)"):
        traced(embedding, [Aval((3,)), Aval((2,), "i32")])
    with pytest.raises(DtypeError, match=r"train\.embedding.*ids of dtype i32"):
        traced(embedding, [Aval((3, 2)), Aval((2,))])
    with pytest.raises(DtypeError, match=r"train\.embedding.*weight of a float dtype"):
        traced(embedding, [Aval((3, 2), "i32"), Aval((2,), "i32")])
