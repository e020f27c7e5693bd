import numpy as np
import pytest

from tests.ir.gradcheck import check_forward, run, traced
from trainc.core.errors import DtypeError, ShapeError
from trainc.ir.ops.lm_head import GROUP, lm_head_grads, lm_head_scores
from trainc.ir.tensor import Aval


def grads(hidden, weight, targets, classes, top, mass, rate, d_hidden, d_weight):
    return lm_head_grads(hidden, weight, targets, classes, (top, mass), rate, d_hidden, d_weight)


def case(rng, rows, width, blocks, classes):
    count = blocks * GROUP
    targets = rng.integers(-count, 2 * count, rows).astype(np.int32)
    targets[targets >= classes] += count  # classes that are not there are nobody's target
    return [rng.standard_normal((rows, width)), rng.standard_normal((count, width)), targets, np.int32(classes)]


@pytest.mark.parametrize(("rows", "width", "blocks", "missing"), [(1, 1, 1, 0), (5, 3, 2, 1), (7, 5, 3, 63)])
def test_decompositions_equal_references(rows, width, blocks, missing):
    rng = np.random.default_rng(20)
    inputs = case(rng, rows, width, blocks, blocks * GROUP - missing)
    check_forward(lm_head_scores, inputs)
    top, mass = rng.standard_normal(rows), 1.0 + rng.random(rows)
    starts = [rng.standard_normal((rows, width)), rng.standard_normal((blocks * GROUP, width))]
    check_forward(grads, [*inputs, top, mass, np.array(0.25), *starts])


def test_two_blocks_give_the_loss_and_gradient_of_a_head():
    """Against the formula, in float64: 1e-12 is a few hundred roundings."""
    rng = np.random.default_rng(21)
    rows, width, vocab = 9, 4, GROUP + 5
    hidden, weight = rng.standard_normal((rows, width)), rng.standard_normal((vocab, width))
    targets = rng.integers(0, vocab, rows).astype(np.int32)
    logits = hidden @ weight.T
    powers = np.exp(logits)
    mass = powers.sum(axis=1)

    padded = np.concatenate([weight, np.zeros((2 * GROUP - vocab, width))])
    blocks = [(padded[i : i + GROUP], (targets - i).astype(np.int32), np.int32(n)) for i, n in ((0, GROUP), (GROUP, 5))]
    scores = [run(lm_head_scores, [hidden, *block]) for block in blocks]
    total = sum(np.exp(top[:, 0]) * part[:, 0] for top, part, _ in scores)
    np.testing.assert_allclose(total, mass, rtol=1e-12)
    np.testing.assert_allclose(sum(s[2] for s in scores), logits[np.arange(rows), targets], rtol=1e-12)

    d_logits = (powers / mass[:, None] - np.eye(vocab)[targets]) / rows
    d_hidden, parts = np.zeros((rows, width)), []
    for block in blocks:
        start = np.zeros((GROUP, width))
        d_hidden, part = run(grads, [hidden, *block, np.zeros(rows), mass, np.array(1.0 / rows), d_hidden, start])
        parts.append(part)
    np.testing.assert_allclose(d_hidden, d_logits @ weight, rtol=1e-12, atol=1e-14)
    d_weight = np.concatenate(parts)
    np.testing.assert_allclose(d_weight[:vocab], d_logits.T @ hidden, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(d_weight[vocab:], 0.0)


def test_refusals_name_the_op():
    good = [Aval((3, 5)), Aval((GROUP, 5)), Aval((3,), "i32"), Aval((), "i32")]
    for position, aval, error, text in [
        (0, Aval((3, 5), "i32"), DtypeError, "hidden of a float dtype"),
        (1, Aval((GROUP, 4)), ShapeError, r"weight of shape \(64, 5\)"),
        (1, Aval((GROUP + 1, 5)), ShapeError, "whole groups of 64 classes, got 65"),
        (2, Aval((4,), "i32"), ShapeError, r"targets of shape \(3,\)"),
        (3, Aval(()), DtypeError, "classes of dtype i32"),
    ]:
        avals = [aval if i == position else a for i, a in enumerate(good)]
        with pytest.raises(error, match=rf"train\.lm_head_scores.*{text}"):
            traced(lm_head_scores, avals)
    rest = [Aval((3,)), Aval((3,)), Aval(()), Aval((3, 5)), Aval((GROUP, 4))]
    with pytest.raises(ShapeError, match=r"train\.lm_head_grads.*d_weight of shape \(64, 5\)"):
        traced(grads, [*good, *rest])
