import numpy as np
import pytest

from tests.ir.gradcheck import check_forward, check_gradients, run, traced
from trainc.core.errors import DtypeError, ShapeError, UsageError
from trainc.ir.backward import backward
from trainc.ir.ops.rms_norm import rms_norm
from trainc.ir.tensor import Aval

EPS = float(np.float32(1e-5))


def norm(x, weight):
    return rms_norm(x, weight, EPS)


@pytest.mark.parametrize("shape", [(4,), (1, 7), (2, 63, 5), (1, 3, 2, 1)])
def test_norm_and_gradients(shape):
    rng = np.random.default_rng(3)
    inputs = [rng.standard_normal(shape), rng.standard_normal(shape[-1:])]
    check_forward(norm, inputs)
    # A row of one element normalises to its sign: a function too flat and too curved at 0 for the stencil.
    check_gradients(norm, inputs, differentiable=[1] if shape[-1] == 1 else [0, 1], rng=rng)


def test_gradient_matches_the_closed_form():
    rng = np.random.default_rng(4)
    x, weight, d_out = rng.standard_normal((3, 6)), rng.standard_normal(6), rng.standard_normal((3, 6))
    d_x, d_weight = run(lambda x, w, d: backward(norm(x, w), [x, w], d), [x, weight, d_out])
    r = 1.0 / np.sqrt(np.mean(x**2, axis=1, keepdims=True) + EPS)
    d_hat = d_out * weight
    np.testing.assert_allclose(d_x, r * (d_hat - x * r**2 * np.mean(d_hat * x, axis=1, keepdims=True)), rtol=1e-12)
    np.testing.assert_allclose(d_weight, np.sum(d_out * x * r, axis=0), rtol=1e-12)


def test_a_row_of_zeros_is_finite():
    out, d_x = run(
        lambda x, w, d: [norm(x, w), *backward(norm(x, w), [x], d)],
        [np.zeros((2, 4)), np.ones(4), np.ones((2, 4))],
    )
    np.testing.assert_array_equal(out, 0.0)
    np.testing.assert_allclose(d_x, EPS**-0.5, rtol=1e-12)


def test_refusals_name_the_op():
    with pytest.raises(ShapeError, match=r"train\.rms_norm.*weight of shape \(5,\)"):
        traced(norm, [Aval((3, 5)), Aval((4,))])
    with pytest.raises(DtypeError, match=r"train\.rms_norm.*weight of dtype f32"):
        traced(norm, [Aval((3, 5)), Aval((5,), "i32")])
    with pytest.raises(UsageError, match=r"train\.rms_norm.*eps"):
        traced(lambda x, w: rms_norm(x, w, float("nan")), [Aval((3, 5)), Aval((5,))])
