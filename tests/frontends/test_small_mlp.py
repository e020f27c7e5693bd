"""SmallMLPTrainer: loss, gradients and steps against float64, predictions, checkpoints, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.frontends.adamw_reference import AdamWReference
from trainc.core.errors import (
    ArgumentTypeError,
    CheckpointError,
    ConfigError,
    DtypeError,
    NotFiniteError,
    NumericsError,
    ShapeError,
    UnsupportedError,
    UsageError,
)
from trainc.core.files import sha256_file
from trainc.frontends.small_mlp import SHAPES, SmallMLPTrainer
from trainc.runtime.checkpoint import read_checkpoint, write_checkpoint

RNG = np.random.default_rng(12)
WEIGHTS = {name: (RNG.standard_normal(shape) * 0.5).astype(np.float32) for name, shape in SHAPES}
X = RNG.standard_normal((37, 8)).astype(np.float32)
Y = RNG.integers(0, 3, 37)

# float32 rounding of values of order one through three sums of at most 37 terms.
CLOSE = 2e-6


def made(**options) -> SmallMLPTrainer:
    return SmallMLPTrainer(WEIGHTS, **options)


def exact(weights, x, y):
    """Return loss, logits, gradients and input gradient in float64."""
    w1, b1, w2, b2 = (weights[name].astype(np.float64) for name, _ in SHAPES)
    hidden = x @ w1.T + b1
    logits = np.maximum(hidden, 0) @ w2.T + b2
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    loss = -np.log(p[np.arange(len(y)), y]).mean()
    d_logits = (p - np.eye(3)[y]) / len(y)
    d_hidden = d_logits @ w2 * (hidden > 0)
    gradients = [d_hidden.T @ x, d_hidden.sum(0), d_logits.T @ np.maximum(hidden, 0), d_logits.sum(0)]
    return loss, logits, dict(zip(weights, gradients, strict=True)), d_hidden @ w1


@pytest.mark.parametrize("rows", [1, 37])
def test_loss_and_gradients_are_exact_to_rounding(rows):
    trainer = made()
    loss, logits, gradients, d_x = exact(WEIGHTS, X[:rows].astype(np.float64), Y[:rows])
    found = trainer.loss_and_grads(X[:rows], Y[:rows], return_input_grad=True)
    assert found["loss"] == pytest.approx(loss, abs=CLOSE)
    np.testing.assert_allclose(found["logits"], logits, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(found["input_grad"], d_x, rtol=0, atol=CLOSE)
    assert list(found["gradients"]) == [name for name, _ in SHAPES]
    for name, gradient in gradients.items():
        np.testing.assert_allclose(found["gradients"][name], gradient, rtol=0, atol=CLOSE, err_msg=name)
    assert trainer.optimizer.t == 0
    assert "input_grad" not in trainer.loss_and_grads(X[:rows], Y[:rows])


def test_six_steps_are_adamw():
    trainer, reference = made(lr=0.01), AdamWReference(WEIGHTS, 0.01)
    for number in range(1, 7):
        loss, logits, gradients, _ = exact(reference.weights, X.astype(np.float64), Y)
        found = trainer.train_step(X, Y)
        assert found["step"] == number
        # A weight whose gradient nearly vanishes may step a little differently: the loss hardly sees it.
        assert found["loss"] == pytest.approx(loss, abs=1e-5)
        np.testing.assert_allclose(found["logits"], logits, rtol=0, atol=1e-4)
        reference.step(gradients)


def test_the_three_ways_to_step_are_one():
    by_step, by_parts, by_loop = made(), made(), made()
    losses = [by_step.train_step(X, Y)["loss"] for _ in range(5)]
    for number in range(1, 6):
        assert by_parts.apply_gradients(by_parts.loss_and_grads(X, Y)["gradients"]) == number
    report = by_loop.train_steps(X, Y, 5)
    assert report["step"] == 5
    np.testing.assert_array_equal(report["losses"], np.array(losses, np.float32))
    for name, array in by_step.parameters().items():
        np.testing.assert_array_equal(array, by_parts.parameters()[name])
        np.testing.assert_array_equal(array, by_loop.parameters()[name])


def test_predictions_of_rows_are_their_own():
    trainer = made()
    logits = trainer.predict_logits(X)
    np.testing.assert_allclose(logits, exact(WEIGHTS, X.astype(np.float64), Y)[1], rtol=0, atol=CLOSE)
    sessions = [X[:5], X[:0], X[5:6], X[6:]]
    np.testing.assert_array_equal(trainer.predict_logits_sessions(sessions), logits)
    assert trainer.predict_logits_sessions([]).shape == (0, 3)
    assert trainer.predict_logits(np.ones((300, 8), np.float32)).shape == (300, 3)


def test_a_checkpoint_goes_on_bit_for_bit(tmp_path: Path):
    trainer = made(lr=0.02, weight_decay=0.1, data_schedule={"file": "a.npy", "next": 4})
    trainer.train_steps(X, Y, 3)
    path = tmp_path / "mlp.ckpt"
    assert trainer.save_checkpoint(path) == sha256_file(path)
    resumed = SmallMLPTrainer.from_checkpoint(path)
    copied = made().load_state_dict(trainer.state_dict())
    assert resumed.data_schedule == copied.data_schedule == {"file": "a.npy", "next": 4}
    assert (resumed.optimizer.lr, resumed.optimizer.t) == (trainer.optimizer.lr, 3)
    wanted = trainer.train_steps(X, Y, 3)
    for other in (resumed, copied):
        report = other.train_steps(X, Y, 3)
        assert report["step"] == 6
        np.testing.assert_array_equal(report["losses"], wanted["losses"])
        np.testing.assert_array_equal(other.optimizer.exp_avg_sq, trainer.optimizer.exp_avg_sq)


def test_damaged_and_foreign_checkpoints_are_refused(tmp_path: Path):
    path = tmp_path / "mlp.ckpt"
    trainer = made()
    trainer.save_checkpoint(path)
    good = read_checkpoint(path)
    for change, message in (
        ({"kind": "byte-lm"}, "kind"),
        ({"config": {}}, "config"),
        ({"step": -1}, "step"),
        ({"optimizer": {"kind": "sgd"}}, "optimizer.kind"),
        ({"data": {}}, "data_schedule"),
    ):
        write_checkpoint(path, good.parameters, good.m, good.v, {**good.state, **change})
        with pytest.raises(CheckpointError, match=message):
            SmallMLPTrainer.from_checkpoint(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="truncated"):
        SmallMLPTrainer.from_checkpoint(path)


def test_values_that_no_training_goes_on_from_are_neither_written_nor_read(tmp_path: Path):
    path, trainer = tmp_path / "mlp.ckpt", made()
    trainer.save_checkpoint(path)
    before, good = path.read_bytes(), read_checkpoint(path)
    trainer.parameters()["bias1"][0] = np.inf
    with pytest.raises(CheckpointError, match=r"mlp\.ckpt is not written.*parameters\['bias1'\]"):
        trainer.save_checkpoint(path)
    assert path.read_bytes() == before
    good.v["bias1"][0] = -1.0
    write_checkpoint(path, good.parameters, good.m, good.v, good.state)
    with pytest.raises(CheckpointError, match=r"mlp\.ckpt .*exp_avg_sq\['bias1'\]"):
        SmallMLPTrainer.from_checkpoint(path)
    with pytest.raises(UsageError, match=r"exp_avg_sq\['bias1'\]"):
        made().load_state_dict({**made().state_dict(), "exp_avg_sq": good.v})


def test_a_wrong_state_changes_nothing():
    trainer, state = made(), made(data_schedule=1).state_dict()
    for change, error, message in (
        ({"schema": "other"}, UsageError, "schema"),
        ({"numeric_mode": "fast"}, UsageError, "numeric_mode"),
        ({"extra": 1}, UsageError, "extra"),
        ({"step": 1.5}, ConfigError, "step"),
        ({"optimizer": None}, UsageError, "damaged"),
        ({"exp_avg": {}}, ShapeError, "missing"),
        ({"data": {"data_schedule": "x" * 2048}}, ConfigError, "2048 bytes"),
    ):
        with pytest.raises(error, match=message):
            trainer.load_state_dict({**state, **change})
    with pytest.raises(ArgumentTypeError, match="dict"):
        trainer.load_state_dict([])
    assert trainer.data_schedule is None
    assert trainer.optimizer.t == 0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda t: t.train_step(X[:, :7].copy(), Y), ShapeError, "X must"),
        (lambda t: t.train_step(np.ones((257, 8), np.float32), np.zeros(257, int)), ShapeError, "256 rows"),
        (lambda t: t.train_step(X[:0], Y[:0]), ShapeError, "X must"),
        (lambda t: t.train_step(X.astype(np.float64), Y), DtypeError, "X must"),
        (lambda t: t.train_step(X, Y[:3]), ShapeError, "y must"),
        (lambda t: t.train_step(X, np.full(37, 3)), UsageError, r"y\[0\]"),
        (lambda t: t.train_step(X, np.full(37, -100)), UsageError, r"y\[0\]"),
        (lambda t: t.train_step(X, Y.astype(np.float32)), UsageError, "y must hold integers"),
        (lambda t: t.train_step(X, Y, return_input_grad=1), ConfigError, "return_input_grad"),
        (lambda t: t.train_step(X * np.float32(1e38), Y), NumericsError, "step 1"),
        (lambda t: t.train_steps(X, Y, 0), ConfigError, "k must"),
        (lambda t: t.predict_logits_sessions([X, X[:, :3].copy()]), ShapeError, r"sessions\[1\]"),
        (lambda t: t.apply_gradients({}), ShapeError, "missing"),
        (lambda t: t.apply_gradients({**WEIGHTS, "bias2": np.full(3, np.nan, np.float32)}), NotFiniteError, "bias2"),
        (lambda t: t.load_weights({**WEIGHTS, "more": X}), ShapeError, "more"),
        (lambda t: setattr(t, "data_schedule", {1, 2}), ConfigError, "JSON"),
        (lambda t: setattr(t, "data_schedule", float("nan")), ConfigError, "JSON"),
        (lambda t: made(numeric_mode="identical"), UnsupportedError, "identical"),
        (lambda t: made(lr=-1.0), ConfigError, "lr"),
        (lambda t: SmallMLPTrainer(None), ArgumentTypeError, "weights"),
    ],
)
def test_what_is_refused_changes_nothing(call, error, message):
    trainer = made()
    before = json.dumps({name: array.tolist() for name, array in trainer.parameters().items()})
    with np.errstate(over="ignore"), pytest.raises(error, match=message):
        call(trainer)
    assert json.dumps({name: array.tolist() for name, array in trainer.parameters().items()}) == before
    assert trainer.optimizer.t == 0


def test_fast_mode_reaches_the_kernels():
    logits = made(numeric_mode="fast").predict_logits(X)
    # Other lowerings round otherwise, up to the accuracy that mode promises.
    np.testing.assert_allclose(logits, made().predict_logits(X), rtol=0, atol=1e-4)
