import numpy as np
import pytest

from tests.ir.gradcheck import check_forward, check_gradients, run, traced
from trainc.core.errors import DtypeError, ShapeError
from trainc.ir.backward import backward
from trainc.ir.ops.rope import rope
from trainc.ir.tensor import Aval


def rotated(x, positions):
    """The formula of spec section 3, element by element."""
    batch, length, heads, width = x.shape
    out = np.zeros_like(x)
    for b, t, h, i in np.ndindex(batch, length, heads, width // 2):
        angle = int(positions[t]) * 10000.0 ** (-2.0 * i / width)
        low, high = x[b, t, h, i], x[b, t, h, i + width // 2]
        out[b, t, h, i] = low * np.cos(angle) - high * np.sin(angle)
        out[b, t, h, i + width // 2] = high * np.cos(angle) + low * np.sin(angle)
    return out


@pytest.mark.parametrize("shape", [(1, 1, 1, 2), (2, 5, 3, 8), (1, 65, 2, 6)])
def test_positions_from_zero(shape):
    rng = np.random.default_rng(5)
    inputs = [rng.standard_normal(shape)]
    (out,) = check_forward(rope, inputs)
    np.testing.assert_allclose(out, rotated(inputs[0], range(shape[1])), rtol=1e-12, atol=1e-13)
    check_gradients(rope, inputs, differentiable=[0], rng=rng)


def test_given_positions():
    rng = np.random.default_rng(6)
    inputs = [rng.standard_normal((2, 3, 2, 4)), np.array([61, 0, 127], np.int32)]

    def build(x, positions):
        return rope(x, positions, max_positions=128)

    (out,) = check_forward(build, inputs)
    np.testing.assert_allclose(out, rotated(*inputs), rtol=1e-12, atol=1e-13)
    check_gradients(build, inputs, differentiable=[0], rng=rng)


def test_the_gradient_turns_back():
    rng = np.random.default_rng(7)
    x = rng.standard_normal((1, 9, 2, 6))
    (back,) = run(lambda x: backward(rope(x), [x], rope(x)), [x])
    np.testing.assert_allclose(back, x, rtol=0.0, atol=1e-14)  # a rotation and its inverse: a few roundings of 1.1e-16


def test_refusals_name_the_op():
    with pytest.raises(ShapeError, match=r"train\.rope.*x \(B, L, H, E\)"):
        traced(rope, [Aval((3, 5, 8))])
    with pytest.raises(ShapeError, match=r"train\.rope.*even head dim.*5"):
        traced(rope, [Aval((1, 3, 2, 5))])
    with pytest.raises(ShapeError, match=r"train\.rope.*positions and max_positions together"):
        traced(rope, [Aval((1, 3, 2, 4)), Aval((3,), "i32")])
    with pytest.raises(ShapeError, match=r"train\.rope.*cos of shape \(3, 2\)"):
        traced(lambda x, p: rope(x, p, 8), [Aval((1, 3, 2, 4)), Aval((4,), "i32")])
    with pytest.raises(DtypeError, match="i32"):
        traced(lambda x, p: rope(x, p, 8), [Aval((1, 3, 2, 4)), Aval((3,))])
