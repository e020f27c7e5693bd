"""What primitives refuse, and the forms of theirs that continue a sum or follow another tensor's size."""

import numpy as np
import pytest

from tests.ir.gradcheck import run, traced
from trainc.core.errors import ShapeError
from trainc.core.philox import words
from trainc.ir.interpret import interpret
from trainc.ir.mlir import DYNAMIC
from trainc.ir.primitives import matmul, random_bits
from trainc.ir.program import Argument, Program, Result, trace
from trainc.ir.tensor import Aval

RNG = np.random.default_rng(0)


def test_a_product_continues_a_sum():
    a, b, start = (RNG.standard_normal(shape) for shape in ((3, 4), (4, 5), (3, 5)))
    (whole,) = run(lambda a, b, s: matmul("tk,kn->tn", a, b, s), [a, b, start])
    np.testing.assert_allclose(whole, start + a @ b, rtol=1e-12)  # a few float64 roundings
    (first,) = run(lambda a, b, s: matmul("tk,kn->tn", a, b, s), [a[:, :2], b[:2], start])
    (second,) = run(lambda a, b, s: matmul("tk,kn->tn", a, b, s), [a[:, 2:], b[2:], first])
    np.testing.assert_allclose(second, whole, rtol=1e-12)


def test_a_start_of_another_shape_is_refused():
    avals = [Aval((3, 4)), Aval((4, 5)), Aval((5, 3))]
    with pytest.raises(ShapeError, match=r"train\.matmul.*start f32\[5,3\].*one start value f32\[3,5\]"):
        traced(lambda a, b, s: matmul("tk,kn->tn", a, b, s), avals)


def test_words_follow_the_size_of_a_call():
    program = Program()

    def draw(key, like):
        return [Result("words", random_bits(key, like))]

    trace(program, "draw", draw, [Argument("key", Aval((5,), "i32")), Argument("like", Aval((DYNAMIC,)))])
    key = np.array([7, 0, 3, 5, 0], np.int32)
    for count in (1, 9):
        (got,) = interpret(program, "draw", [key, np.zeros(count)])
        assert got.tobytes() == words(7, 3, 1, 3).reshape(-1)[1 : 1 + count].tobytes()


def test_words_of_a_free_size_have_one_dimension():
    with pytest.raises(ShapeError, match=r"train\.random_bits.*one dimension"):
        traced(random_bits, [Aval((5,), "i32"), Aval((DYNAMIC, 3))])
