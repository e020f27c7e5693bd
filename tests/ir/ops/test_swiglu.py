import numpy as np
import pytest

from tests.ir.gradcheck import check_forward, check_gradients, run, traced
from trainc.core.errors import DtypeError, ShapeError
from trainc.ir.backward import backward
from trainc.ir.ops.swiglu import swiglu
from trainc.ir.tensor import Aval


@pytest.mark.parametrize("shape", [(), (1,), (3, 7), (2, 3, 5)])
def test_product_and_gradients(shape):
    rng = np.random.default_rng(8)
    inputs = [3.0 * rng.standard_normal(shape), rng.standard_normal(shape)]
    check_forward(swiglu, inputs)
    check_gradients(swiglu, inputs, differentiable=[0, 1], rng=rng)


def test_large_gates_saturate():
    gate = np.array([-700.0, 700.0])
    out, d_gate, d_up = run(
        lambda g, u, d: [swiglu(g, u), *backward(swiglu(g, u), [g, u], d)],
        [gate, np.full(2, 2.0), np.ones(2)],
    )
    # exp(-700) is 1e-304: beyond it the sigmoid is 0 or 1 in float64.
    np.testing.assert_allclose(out, [0.0, 1400.0], rtol=1e-15, atol=1e-300)
    np.testing.assert_allclose(d_gate, [0.0, 2.0], rtol=1e-15, atol=1e-300)
    np.testing.assert_allclose(d_up, [0.0, 700.0], rtol=1e-15, atol=1e-300)


def test_refusals_name_the_op():
    with pytest.raises(ShapeError, match=r"train\.swiglu.*up of shape \(3, 5\)"):
        traced(swiglu, [Aval((3, 5)), Aval((5,))])
    with pytest.raises(DtypeError, match=r"train\.swiglu.*up of dtype f32"):
        traced(swiglu, [Aval((3,)), Aval((3,), "i32")])
