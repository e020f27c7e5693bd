import numpy as np
import pytest

from tests.ir.gradcheck import check_forward, check_gradients, run, traced
from trainc.core.errors import DtypeError, ShapeError
from trainc.ir.backward import backward
from trainc.ir.ops.cross_entropy import IGNORED
from trainc.ir.ops.cross_entropy_rows import cross_entropy_rows
from trainc.ir.tensor import Aval


def case(rng, rows, classes, *smoothing):
    targets = rng.integers(0, classes, rows).astype(np.int32)
    return [2.0 * rng.standard_normal((rows, classes)), targets, *(np.array(s) for s in smoothing)]


def loss_and_gradient(logits, targets, d_loss, *smoothing):
    loss = cross_entropy_rows(logits, targets, *smoothing)
    return [loss, *backward(loss, [logits], d_loss)]


@pytest.mark.parametrize("smoothing", [(), (0.3,)])
@pytest.mark.parametrize(("rows", "classes"), [(1, 2), (5, 7), (65, 13), (3, 1)])
def test_loss_and_gradient(rows, classes, smoothing):
    rng = np.random.default_rng(10)
    inputs = case(rng, rows, classes, *smoothing)
    if rows > 1:
        inputs[1][[0, rows // 2]] = IGNORED
    check_forward(cross_entropy_rows, inputs)
    check_gradients(cross_entropy_rows, inputs, differentiable=[0], rng=rng)


@pytest.mark.parametrize("smoothing", [0.0, 0.25])
def test_value_and_closed_form_gradient(smoothing):
    logits, targets, eps = case(np.random.default_rng(11), 4, 6, smoothing)
    targets[2] = IGNORED
    d_loss = np.array([1.0, -0.5, 2.0, 3.0])
    loss, d_logits = run(loss_and_gradient, [logits, targets, d_loss, eps])
    softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    used = targets != IGNORED
    wanted = (1.0 - smoothing) * np.eye(6)[np.where(used, targets, 0)] + smoothing / 6.0
    expected = -(wanted * np.log(softmax)).sum(axis=1) * used
    np.testing.assert_allclose(loss, expected, rtol=1e-12)
    np.testing.assert_allclose(d_logits, d_loss[:, None] * (softmax - wanted) * used[:, None], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("smoothing", [(), (0.1,)])
def test_ignored_rows_give_positive_zero_whatever_they_hold(smoothing):
    logits, targets, *eps = case(np.random.default_rng(12), 3, 5, *smoothing)
    targets[:] = IGNORED
    logits[1, 2] = np.nan
    with np.errstate(invalid="ignore"):
        values = run(loss_and_gradient, [logits, targets, -np.ones(3), *eps])
    for value in values:
        np.testing.assert_array_equal(value, 0.0)
        assert not np.signbit(value).any()


def test_a_class_that_cannot_be_costs_nothing_without_smoothing():
    logits = np.array([[0.0, -np.inf, 1.0]], np.float32)
    loss, d_logits = run(loss_and_gradient, [logits, np.zeros(1, np.int32), np.ones(1)], dtype=np.float32)
    np.testing.assert_allclose(loss, np.log1p(np.e), rtol=1e-6)  # a few float32 roundings
    assert d_logits[0, 1] == 0.0


def test_refusals_name_the_op():
    good = [Aval((3, 5)), Aval((3,), "i32"), Aval(())]
    for position, aval, error, text in [
        (0, Aval((3, 5, 1)), ShapeError, r"logits \(T, V\)"),
        (0, Aval((3, 5), "i32"), DtypeError, "logits of a float dtype"),
        (1, Aval((4,), "i32"), ShapeError, r"targets of shape \(3,\)"),
        (1, Aval((3,)), DtypeError, "targets of dtype i32"),
        (2, Aval((1,)), ShapeError, r"smoothing of shape \(\)"),
        (2, Aval((), "i32"), DtypeError, "smoothing of dtype f32"),
    ]:
        avals = [aval if i == position else a for i, a in enumerate(good)]
        with pytest.raises(error, match=rf"train\.cross_entropy_rows.*{text}"):
            traced(cross_entropy_rows, avals)
