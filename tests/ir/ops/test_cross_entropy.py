import numpy as np
import pytest

from tests.ir.gradcheck import FUNCTION, check_forward, check_gradients, run, traced
from trainc.core.errors import DtypeError, ShapeError
from trainc.ir.backward import backward
from trainc.ir.mlir import entry_block, scope
from trainc.ir.ops.cross_entropy import IGNORED, cross_entropy
from trainc.ir.ops.cross_entropy_rows import cross_entropy_rows
from trainc.ir.tensor import Aval
from trainc.passes.pipelines import TO_PRIMITIVES
from trainc.passes.runner import run_passes


def case(rng, rows, classes, divisor=3.0, scale=2.0):
    targets = rng.integers(0, classes, rows).astype(np.int32)
    return [scale * rng.standard_normal((rows, classes)), targets, np.array(divisor)]


def loss_and_gradient(logits, targets, divisor):
    loss = cross_entropy(logits, targets, divisor)
    return [loss, *backward(loss, [logits])]


@pytest.mark.parametrize(("rows", "classes"), [(1, 2), (5, 7), (65, 13), (3, 1)])
def test_loss_and_gradient(rows, classes):
    rng = np.random.default_rng(10)
    inputs = case(rng, rows, classes)
    if rows > 1:
        inputs[1][[0, rows // 2]] = IGNORED
    check_forward(cross_entropy, inputs)
    check_gradients(cross_entropy, inputs, differentiable=[0], rng=rng)


def test_value_and_closed_form_gradient():
    logits, targets, divisor = case(np.random.default_rng(11), 4, 6)
    targets[2] = IGNORED
    loss, d_logits = run(loss_and_gradient, [logits, targets, divisor])
    softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    used = targets != IGNORED
    np.testing.assert_allclose(loss, -np.log(softmax[used, targets[used]]).sum() / divisor, rtol=1e-12)
    expected = (softmax - np.eye(6)[np.where(used, targets, 0)]) / divisor * used[:, None]
    np.testing.assert_allclose(d_logits, expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("build", [cross_entropy, cross_entropy_rows], ids=["summed", "rows"])
def test_row_maxima_are_not_fused_into_their_readers(build):
    avals = [Aval((5, 7)), Aval((5,), "i32"), *([Aval(())] if build is cross_entropy else [])]
    program = traced(build, avals)
    run_passes(program, TO_PRIMITIVES)
    with scope():
        maxima = [
            item.operation.results[0]
            for item in entry_block(program.function(FUNCTION)).operations
            if item.operation.name == "train.reduce" and item.operation.attributes["kind"].value == "max"
        ]
        assert [use.owner.name for value in maxima for use in value.uses] == ["train.barrier"]


def test_ignored_rows_give_positive_zero():
    logits, targets, divisor = case(np.random.default_rng(12), 3, 5)
    targets[:] = IGNORED
    for value in run(loss_and_gradient, [logits, targets, divisor]):
        np.testing.assert_array_equal(value, 0.0)
        assert not np.signbit(value).any()


def test_large_logits_lose_nothing_in_float32():
    rng = np.random.default_rng(13)
    small, targets, divisor = case(rng, 9, 17)
    # Multiples of 2^-9 up to 8: adding 1e4 to them is exact in float32, so the loss must not change at all.
    small = np.round(small * 512.0) / 512.0
    large = small + 1e4
    for want, got in zip(
        run(loss_and_gradient, [small, targets, divisor], dtype=np.float32),
        run(loss_and_gradient, [large, targets, divisor], dtype=np.float32),
        strict=True,
    ):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("target", [0, 1])
def test_distant_logits_are_finite(target):
    logits = np.array([[1e4, -1e4, 0.0]], np.float32)
    loss, d_logits = run(loss_and_gradient, [logits, np.array([target], np.int32), np.array(1.0)], dtype=np.float32)
    np.testing.assert_array_equal(loss, [0.0, 2e4][target])
    np.testing.assert_array_equal(d_logits, [[[0.0, 0.0, 0.0]], [[1.0, -1.0, 0.0]]][target])


def test_refusals_name_the_op():
    good = [Aval((3, 5)), Aval((3,), "i32"), Aval(())]
    for position, aval, error, text in [
        (0, Aval((3, 5, 1)), ShapeError, r"logits \(T, V\)"),
        (0, Aval((3, 5), "i32"), DtypeError, "logits of a float dtype"),
        (0, Aval((3, 2**30)), ShapeError, r"fewer than 2\*\*31"),
        (1, Aval((4,), "i32"), ShapeError, r"targets of shape \(3,\)"),
        (1, Aval((3,)), DtypeError, "targets of dtype i32"),
        (2, Aval((1,)), ShapeError, r"divisor of shape \(\)"),
    ]:
        avals = [aval if i == position else a for i, a in enumerate(good)]
        with pytest.raises(error, match=rf"train\.cross_entropy.*{text}"):
            traced(cross_entropy, avals)
