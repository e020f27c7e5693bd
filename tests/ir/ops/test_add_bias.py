import numpy as np
import pytest

from tests.ir.gradcheck import check_forward, check_gradients, traced
from trainc.core.errors import DtypeError, ShapeError
from trainc.ir.backward import backward
from trainc.ir.ops.add_bias import add_bias
from trainc.ir.tensor import Aval


@pytest.mark.parametrize("shape", [(4,), (1, 1), (63, 5), (2, 3, 7)])
def test_sum_and_gradients(shape):
    rng = np.random.default_rng(10)
    inputs = [rng.standard_normal(shape), rng.standard_normal(shape[-1])]
    (out,) = check_forward(add_bias, inputs)
    np.testing.assert_array_equal(out, inputs[0] + inputs[1])
    check_gradients(add_bias, inputs, differentiable=[0, 1], rng=rng)


def test_no_sum_for_a_frozen_bias():
    text = traced(lambda x, b, d: backward(add_bias(x, b), [x], d), [Aval((3, 4)), Aval((4,)), Aval((3, 4))]).print()
    assert "add_bias_grad" not in text


def test_refusals_name_the_op():
    with pytest.raises(ShapeError, match=r"train\.add_bias.*bias of shape \(5,\)"):
        traced(add_bias, [Aval((3, 5)), Aval((3,))])
    with pytest.raises(ShapeError, match=r"train\.add_bias.*x \(\.\.\., N\)"):
        traced(add_bias, [Aval(()), Aval((1,))])
    with pytest.raises(DtypeError, match=r"train\.add_bias.*bias of dtype f32"):
        traced(add_bias, [Aval((3, 5)), Aval((5,), "i32")])
