import numpy as np
import pytest

from tests.ir.gradcheck import check_forward, check_gradients, run, traced
from trainc.core.errors import DtypeError
from trainc.ir.backward import backward
from trainc.ir.ops.relu import relu
from trainc.ir.tensor import Aval


@pytest.mark.parametrize("shape", [(), (1,), (3, 7), (2, 3, 5)])
def test_positive_part_and_gradients(shape):
    rng = np.random.default_rng(9)
    magnitude = 0.1 + np.abs(rng.standard_normal(shape))  # no step of the differences crosses the kink
    inputs = [magnitude * rng.choice([-1.0, 1.0], shape)]
    (out,) = check_forward(relu, inputs)
    np.testing.assert_array_equal(out, np.maximum(inputs[0], 0.0))
    check_gradients(relu, inputs, differentiable=[0], rng=rng)


def test_zero_has_no_gradient_and_nan_stays():
    x = np.array([-0.0, 0.0, 1.0, np.nan])
    out, d_x = run(lambda x, d: [relu(x), *backward(relu(x), [x], d)], [x, np.full(4, 2.0)])
    np.testing.assert_array_equal(out, [0.0, 0.0, 1.0, np.nan])
    np.testing.assert_array_equal(d_x, [0.0, 0.0, 2.0, 2.0])


def test_refusals_name_the_op():
    with pytest.raises(DtypeError, match=r"train\.relu.*x of a float dtype"):
        traced(relu, [Aval((3,), "i32")])
