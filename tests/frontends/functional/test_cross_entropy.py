"""cross_entropy: golden values, the formula in float64, splits into rows, refusals."""

import array

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainc.frontends.functional import cross_entropy as module
from trainc.frontends.functional.cross_entropy import cross_entropy

CLASSES = 7

# The golden values are rounded float32 results of another order of operations: a few roundings of values below 10.
GOLDEN = 1e-6
# A row takes about ten roundings of its largest term, of 2^-24 each; sums over rows are in float64.
RELATIVE = 1e-6


def logits_of(rng, rows, classes=CLASSES, scale=3.0):
    return (scale * rng.standard_normal((rows, classes))).astype(np.float32)


def expected(logits, targets, ignored, smoothing=0.0):
    """Losses of the rows and gradient of their sum, in float64."""
    x = logits.astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    log_p = x - np.log(np.exp(x).sum(axis=1, keepdims=True))
    wanted = np.full_like(x, smoothing / x.shape[1])
    wanted[np.arange(len(x)), np.where(ignored, 0, targets)] += 1.0 - smoothing
    used = ~ignored[:, None]
    with np.errstate(invalid="ignore"):
        losses = np.where(used, -wanted * log_p, 0.0).sum(axis=1)
    return losses, np.where(used, np.exp(log_p) - wanted, 0.0)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ce_mean_ls0", {}),
        ("ce_sum_ls0", {"reduction": "sum"}),
        ("ce_sum_ls0.1", {"reduction": "sum", "label_smoothing": 0.1}),
        ("ce_sum_num_items9", {"reduction": "sum", "num_items": 9}),
        # The golden value of ce_mean_num_items9 ignores num_items; here it divides a mean as it divides a sum.
        ("ce_sum_num_items9", {"reduction": "mean", "num_items": 9}),
    ],
)
def test_golden_values(ops, name, options):
    logits, targets = ops("ce_inputs", "logits"), np.array(ops("ce_inputs", "targets"))
    loss, d_logits = cross_entropy(logits, targets, return_grad=True, **options)
    assert isinstance(loss, float)
    assert loss == pytest.approx(ops(name, "loss"), rel=0, abs=GOLDEN)
    np.testing.assert_allclose(d_logits, ops(name, "dlogits"), rtol=0, atol=GOLDEN)
    assert cross_entropy(logits, targets, **options) == loss


def test_golden_losses_of_rows(ops):
    losses = cross_entropy(ops("ce_inputs", "logits"), np.array(ops("ce_inputs", "targets")), reduction="none")
    assert losses.dtype == np.float32
    np.testing.assert_allclose(losses, ops("ce_none"), rtol=0, atol=GOLDEN)


@settings(deadline=None, max_examples=80)
@given(
    rows=st.integers(1, 150),
    ignore_index=st.sampled_from([-100, -1, 0, 3, CLASSES, 10**12]),
    share=st.floats(0.0, 1.0),
    smoothing=st.sampled_from([0.0, 0.1, 0.9]),
    reduction=st.sampled_from(["mean", "sum"]),
    num_items=st.sampled_from([None, 1, 9, 10**7]),
    seed=st.integers(0, 99),
)
def test_the_formula(rows, ignore_index, share, smoothing, reduction, num_items, seed):
    rng = np.random.default_rng(seed)
    logits = logits_of(rng, rows)
    targets = rng.integers(0, CLASSES, rows)
    targets[rng.random(rows) < share] = ignore_index
    ignored = targets == ignore_index
    losses, gradient = expected(logits, targets, ignored, smoothing)
    given_ = {"ignore_index": ignore_index, "label_smoothing": smoothing}

    np.testing.assert_allclose(
        cross_entropy(logits, targets, reduction="none", **given_), losses, rtol=RELATIVE, atol=RELATIVE
    )
    if ignored.all() and reduction == "mean" and num_items is None:
        with pytest.raises(ValueError, match="all ignored"):
            cross_entropy(logits, targets, **given_)
        return
    divisor = num_items or (np.count_nonzero(~ignored) if reduction == "mean" else 1)
    loss, d_logits = cross_entropy(
        logits, targets, reduction=reduction, num_items=num_items, return_grad=True, **given_
    )
    assert loss == pytest.approx(losses.sum() / divisor, rel=RELATIVE, abs=RELATIVE / divisor)
    np.testing.assert_allclose(d_logits * divisor, gradient, rtol=RELATIVE, atol=RELATIVE)
    assert not np.signbit(d_logits[ignored]).any()
    np.testing.assert_array_equal(d_logits[ignored], 0.0)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_rows_in_pieces_give_the_bits_of_the_whole(smoothing, monkeypatch):
    rng = np.random.default_rng(1)
    logits, targets = logits_of(rng, 131), rng.integers(-1, CLASSES, 131)
    options = {"ignore_index": -1, "label_smoothing": smoothing}
    whole = cross_entropy(logits, targets, reduction="none", **options)
    loss, d_logits = cross_entropy(logits, targets, num_items=64, return_grad=True, **options)
    for cuts in ([1], [64], [3, 67, 130], list(range(1, 131))):
        pieces = zip(np.split(logits, cuts), np.split(targets, cuts), strict=True)
        losses, gradients = [], []
        for rows, classes in pieces:
            losses.append(cross_entropy(rows, classes, reduction="none", **options))
            part = cross_entropy(rows, classes, reduction="sum", num_items=64, return_grad=True, **options)
            gradients.append(part[1])
        assert np.concatenate(losses).tobytes() == whole.tobytes()
        assert np.concatenate(gradients).tobytes() == d_logits.tobytes()

    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 40 * CLASSES)
    again = cross_entropy(logits, targets, num_items=64, return_grad=True, **options)
    assert (again[0], again[1].tobytes()) == (loss, d_logits.tobytes())


def test_large_and_impossible_logits():
    logits = np.array([[1e4, -1e4, 0, 0, 0, 0, 0], [0, -np.inf, 0, 0, 0, 0, 0]], np.float32)
    np.testing.assert_allclose(cross_entropy(logits, np.array([1, 0]), reduction="none"), [2e4, np.log(6)], rtol=1e-6)
    loss, d_logits = cross_entropy(logits, np.array([0, -100]), return_grad=True)
    assert loss == 0.0
    np.testing.assert_array_equal(d_logits, np.zeros_like(logits))


def test_nan_is_seen_where_it_counts():
    logits = logits_of(np.random.default_rng(2), 3)
    logits[1, 4] = np.nan
    losses = cross_entropy(logits, np.array([0, 1, 2]), reduction="none")
    np.testing.assert_array_equal(np.isnan(losses), [False, True, False])
    loss, d_logits = cross_entropy(logits, np.array([0, -100, 2]), return_grad=True)
    assert np.isfinite(loss)
    np.testing.assert_array_equal(d_logits[1], 0.0)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64])
def test_targets_of_any_integer_type(dtype):
    logits = logits_of(np.random.default_rng(3), 5)
    targets = np.array([0, 6, 2, 2, 1])
    assert cross_entropy(logits, targets.astype(dtype)) == cross_entropy(logits, targets)


def test_targets_from_other_buffers():
    logits = logits_of(np.random.default_rng(4), 4)
    plain = cross_entropy(logits, np.array([5, 0, 1, 6]))
    assert cross_entropy(memoryview(logits), array.array("q", [5, 0, 1, 6])) == plain
    assert cross_entropy(logits, np.array([5, 9, 0, 9, 1, 9, 6])[::2]) == plain


GOOD = (logits_of(np.random.default_rng(5), 3), np.array([0, 1, 2]))


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"targets": np.array([0, 7, 2])}, ValueError, r"targets\[1\] is 7; it must be a class in \[0, 7\)"),
        ({"targets": np.array([0, 1, -1])}, ValueError, r"targets\[2\] is -1"),
        ({"targets": np.array([0, 1, -100]), "ignore_index": 2}, ValueError, r"targets\[2\] is -100.*= 2"),
        ({"targets": np.array([2**63, 1, 2], np.uint64)}, ValueError, r"targets\[0\]"),
        ({"targets": np.full(3, -100)}, ValueError, "all ignored"),
        ({"targets": np.array([0.0, 1.0, 2.0])}, ValueError, "targets must hold integers"),
        ({"targets": np.zeros((3, 7), np.float32)}, ValueError, "targets must hold integers"),
        ({"targets": np.array([True, False, True])}, ValueError, "targets must hold integers"),
        ({"targets": np.array([0, 1])}, ValueError, r"targets must have shape \(N,\)"),
        ({"targets": np.array([[0, 1, 2]])}, ValueError, r"targets must have shape \(N,\)"),
        ({"targets": [0, 1, 2]}, TypeError, "targets must be a NumPy array"),
        ({"logits": GOOD[0].astype(np.float64)}, TypeError, "logits must be a float32 array"),
        ({"logits": GOOD[0].astype(np.float16)}, TypeError, "logits must be a float32 array"),
        ({"logits": GOOD[0][0]}, ValueError, r"logits must have shape \(N, V\)"),
        ({"logits": np.zeros((0, 7), np.float32)}, ValueError, "logits must have at least one element"),
        ({"logits": np.zeros((3, 14), np.float32)[:, ::2]}, ValueError, "logits must be C-contiguous"),
        ({"reduction": "none", "return_grad": True}, NotImplementedError, "return_grad"),
        ({"reduction": "none", "num_items": 3}, ValueError, "num_items"),
        ({"reduction": "average"}, ValueError, "reduction must be one of mean, sum, none"),
        ({"label_smoothing": 1.0}, ValueError, "label_smoothing"),
        ({"label_smoothing": -0.1}, ValueError, "label_smoothing"),
        ({"label_smoothing": float("nan")}, ValueError, "label_smoothing"),
        ({"num_items": 0}, ValueError, "num_items"),
        ({"num_items": 2.5}, ValueError, "num_items"),
        ({"num_items": 2**63}, ValueError, "num_items must be below"),
        ({"num_items": 10**400}, ValueError, "num_items must be below"),
        ({"ignore_index": 1.5}, ValueError, "ignore_index"),
        ({"return_grad": "yes"}, ValueError, "return_grad"),
        ({"weight": np.ones(7, np.float32)}, TypeError, "no argument 'weight'"),
        ({"size_average": True}, TypeError, "no argument 'size_average'"),
        ({"numeric_mode": "bogus"}, ValueError, "numeric_mode must be one of"),
        ({"numeric_mode": "identical"}, NotImplementedError, "identical"),
    ],
)
def test_refusals_name_the_argument(change, error, text):
    with pytest.raises(error, match=text):
        cross_entropy(**{"logits": GOOD[0], "targets": GOOD[1], **change})


def test_a_microbatch_without_targets_is_nothing():
    loss, d_logits = cross_entropy(GOOD[0], np.full(3, -100), num_items=20, return_grad=True)
    assert loss == 0.0
    np.testing.assert_array_equal(d_logits, 0.0)
    assert cross_entropy(GOOD[0], np.full(3, -100), reduction="sum") == 0.0
