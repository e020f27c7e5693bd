import numpy as np
import pytest

from tests.ir.gradcheck import check_forward, check_gradients, traced
from trainc.core.errors import DtypeError, ShapeError
from trainc.ir.backward import backward
from trainc.ir.ops.linear import linear
from trainc.ir.tensor import Aval


@pytest.mark.parametrize(
    ("shape", "outputs"), [((4,), 3), ((1, 7), 5), ((2, 63, 5), 1), ((1, 3, 2, 1), 4), ((64, 5), 67)]
)
def test_product_and_gradients(shape, outputs):
    rng = np.random.default_rng(2)
    inputs = [rng.standard_normal(shape), rng.standard_normal((outputs, shape[-1]))]
    (out,) = check_forward(linear, inputs)
    np.testing.assert_allclose(out, np.einsum("...k,nk->...n", *inputs), rtol=1e-12, atol=1e-13)
    check_gradients(linear, inputs, differentiable=[0, 1], rng=rng)


@pytest.mark.parametrize(("wanted", "emitted"), [(0, "linear_grad_x"), (1, "linear_grad_weight")])
def test_only_the_wanted_gradient_is_emitted(wanted, emitted):
    def build(*operands):
        x, weight, d_out = operands
        return backward(linear(x, weight), [operands[wanted]], d_out)

    text = traced(build, [Aval((3, 4)), Aval((5, 4)), Aval((3, 5))]).print()
    assert emitted in text
    assert text.count("linear_grad") == 1


def test_refusals_name_the_op():
    with pytest.raises(ShapeError, match=r"train\.linear.*expected x \(\.\.\., 4\)"):
        traced(linear, [Aval((3, 5)), Aval((2, 4))])
    with pytest.raises(ShapeError, match=r"train\.linear.*weight \(N, K\)"):
        traced(linear, [Aval((3, 5)), Aval((5,))])
    with pytest.raises(ShapeError, match=r"train\.linear.*x \(\.\.\., K\)"):
        traced(linear, [Aval(()), Aval((2, 5))])
    with pytest.raises(DtypeError, match=r"train\.linear.*weight of dtype f32"):
        traced(linear, [Aval((3, 5)), Aval((2, 5), "bf16")])
    with pytest.raises(DtypeError, match=r"train\.linear.*x of a float dtype"):
        traced(linear, [Aval((3, 5), "i32"), Aval((2, 5), "i32")])
