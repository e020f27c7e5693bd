import numpy as np
import pytest

from tests.ir.gradcheck import check_forward, check_gradients, run, traced
from trainc.core.errors import DtypeError, ShapeError, UsageError
from trainc.core.philox import dropout_scale, uniform
from trainc.ir.backward import backward
from trainc.ir.ops.dropout import dropout
from trainc.ir.tensor import Aval

SEED, STREAM = 0x9ABCDEF012345678, 0x80000005


def key(offset=0, seed=SEED, stream=STREAM):
    words = [seed & 0xFFFFFFFF, seed >> 32, stream, offset & 0xFFFFFFFF, offset >> 32]
    return np.array(words, np.uint32).view(np.int32)


def at(p):
    return lambda x, k: dropout(x, k, p)


@pytest.mark.parametrize(("shape", "p"), [((1,), 0.5), ((3, 7), 0.1), ((2, 65, 3), 0.9), ((8,), 0.0)])
def test_mask_and_gradient(shape, p):
    rng = np.random.default_rng(9)
    inputs = [rng.standard_normal(shape), key()]
    check_forward(at(p), inputs)
    check_gradients(at(p), inputs, differentiable=[0], rng=rng)


@pytest.mark.parametrize("offset", [0, 1, 6, 2**32 - 3])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.999])
def test_bits_are_those_of_the_uniform_stream(offset, p):
    x = np.full((5, 13), -3.0, np.float32)
    (out,) = run(at(p), [x, key(offset)], dtype=np.float32)
    kept = uniform(SEED, STREAM, x.size, offset=offset).reshape(x.shape) >= np.float32(p)
    expected = np.where(kept, x * dropout_scale(p), np.float32(0.0))
    np.testing.assert_array_equal(out.view(np.uint32), expected.view(np.uint32))  # dropped is +0.0, not -0.0


def test_the_border_is_kept():
    """A unit draw equal to p keeps its element."""
    p = float(uniform(SEED, STREAM, 8)[3])
    (out,) = run(at(p), [np.ones(8), key()])
    (above,) = run(at(float(np.nextafter(np.float32(p), np.float32(1.0)))), [np.ones(8), key()])
    assert out[3] != 0.0
    assert above[3] == 0.0


def test_the_backward_draws_again():
    text = traced(lambda x, k: backward(at(0.5)(x, k), [x], x), [Aval((4,)), Aval((5,), "i32")]).print()
    assert '"train.dropout_grad"(%arg0, %arg1)' in text


def test_refusals_name_the_op():
    with pytest.raises(ShapeError, match=r"train\.dropout.*key of shape \(5,\)"):
        traced(at(0.1), [Aval((3,)), Aval((4,), "i32")])
    with pytest.raises(DtypeError, match=r"train\.dropout.*key of dtype i32"):
        traced(at(0.1), [Aval((3,)), Aval((5,))])
    with pytest.raises(UsageError, match=r"train\.dropout.*p, the drop probability"):
        traced(at(1.0), [Aval((3,)), Aval((5,), "i32")])
