"""The byte language model: golden losses, exact gradients, logits, its loop, checkpoints, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

from trainc.core.errors import (
    ArgumentTypeError,
    CheckpointError,
    ConfigError,
    DtypeError,
    ShapeError,
    UnsupportedError,
    UsageError,
)
from trainc.core.files import sha256_file
from trainc.frontends.byte_lm.config import LanguageModelConfig
from trainc.frontends.byte_lm.tracing.graph import trace_language_model
from trainc.frontends.byte_lm.trainer import LanguageModelTrainer, SmallByteLanguageModelTrainer
from trainc.ir.interpret import interpret

CONFIG = LanguageModelConfig()


def _golden_inputs():
    """Return weights and ids as the golden values' recipe draws them."""
    rng = np.random.default_rng(0)
    shapes = CONFIG.registry()
    flat = (rng.standard_normal(sum(int(np.prod(shape)) for _, shape in shapes)) * 0.05).astype(np.float32)
    weights, start = {}, 0
    for name, shape in shapes:
        size = int(np.prod(shape))
        weights[name] = np.ones(shape, np.float32) if "norm" in name else flat[start : start + size].reshape(shape)
        start += size
    return weights, rng.integers(0, 256, (2, 33), dtype=np.int32)


WEIGHTS, IDS = _golden_inputs()


def made(**options) -> LanguageModelTrainer:
    return LanguageModelTrainer(CONFIG, WEIGHTS, **options)


def test_golden_losses(golden):
    case = golden("byte_lm")["default_shape"]
    trainer = made()
    after = np.array(case["loss_after_one_step_bits"], np.int32).view(np.float32)
    assert trainer.evaluate(IDS) == pytest.approx(case["loss"], abs=2e-6)
    first = trainer.train_step(IDS)
    assert first.pop("loss") == pytest.approx(case["loss"], abs=2e-6)
    assert first == {"step": 1, "completed_steps": 1, "next_batch_index": 1}
    assert trainer.train_step(IDS)["loss"] == pytest.approx(float(after), abs=5e-6)


def test_gradients_are_exact_to_rounding():
    report = made().train_step(IDS, return_gradients=True)
    program = trace_language_model(CONFIG, "gradients")
    inputs = [*WEIGHTS.values(), IDS[:, :-1], IDS[:, 1:], np.float64(64)]
    loss, *exact = interpret(program, "gradients", inputs)
    assert report["loss"] == pytest.approx(float(loss), abs=2e-6)
    for (name, found), wanted in zip(report["gradients"].items(), exact, strict=True):
        # Norms of float32 errors: each gradient is a sum over 64 tokens through four products.
        assert np.linalg.norm(found - wanted) < 2e-5 * np.linalg.norm(wanted), name


def test_logits_do_not_depend_on_what_is_filled_up():
    trainer, ids = made(), np.concatenate([IDS, IDS[:1] ^ 1])[:, :32]
    whole = trainer.logits(ids)
    assert whole.shape == (3, 32, 256)
    np.testing.assert_array_equal(trainer.logits(ids[:1, :7]), whole[:1, :7])
    lengths = [32, 5, 1]
    padded = np.where(np.arange(32) < np.array(lengths)[:, None], ids, -7)
    ragged = trainer.logits(padded, lengths)
    for row, length in enumerate(lengths):
        np.testing.assert_array_equal(ragged[row, :length], whole[row, :length])
        assert not ragged[row, length:].any()
    np.testing.assert_array_equal(
        trainer.next_bytes(padded, lengths), [whole[r, n - 1].argmax() for r, n in enumerate(lengths)]
    )
    trainer.load_weights({**WEIGHTS, "lm_head": np.zeros_like(WEIGHTS["lm_head"])})
    np.testing.assert_array_equal(trainer.next_bytes(ids), [0, 0, 0])


def test_evaluate_is_the_mean_over_all_rows():
    trainer = made()
    rows = np.concatenate([IDS, IDS[:1] ^ 3])
    single = [trainer.evaluate(rows[i : i + 1]) for i in range(3)]
    assert trainer.evaluate(rows) == pytest.approx(np.mean(single), abs=1e-6)


def test_the_loop_goes_round_the_batches():
    batches = [IDS, IDS ^ 5, IDS ^ 9]
    by_loop, by_hand = made(lr=0.01), made(lr=0.01)
    by_loop.next_batch_index = 2
    report = by_loop.train_steps(batches, 5)
    losses = [by_hand.train_step(batches[i % 3])["loss"] for i in range(2, 7)]
    np.testing.assert_array_equal(report.pop("losses"), np.array(losses, np.float32))
    assert report == {"step": 5, "completed_steps": 5, "next_batch_index": 7}
    assert losses[-1] < losses[0]


def test_a_checkpoint_goes_on_bit_for_bit(tmp_path: Path):
    trainer = made(lr=0.01, betas=(0.8, 0.95))
    batches = [IDS, IDS ^ 5, IDS ^ 9]
    trainer.train_steps(batches, 4)
    path = tmp_path / "lm.ckpt"
    assert trainer.save_checkpoint(path) == sha256_file(path)
    resumed = LanguageModelTrainer.from_checkpoint(path)
    copied = made().load_state_dict(trainer.state_dict())
    assert resumed.config == CONFIG
    assert resumed.save_checkpoint(tmp_path / "again.ckpt") == sha256_file(path)
    wanted = trainer.train_steps(batches, 3)
    for other in (resumed, copied):
        report = other.train_steps(batches, 3)
        assert report["next_batch_index"] == 7
        np.testing.assert_array_equal(report["losses"], wanted["losses"])
    other_shape = LanguageModelTrainer(LanguageModelConfig(length=31), WEIGHTS)
    with pytest.raises(UsageError, match="config"):
        other_shape.load_state_dict(trainer.state_dict())
    data = path.read_bytes()
    path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    with pytest.raises(CheckpointError, match="damaged"):
        LanguageModelTrainer.from_checkpoint(path)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"batch": 0}, ConfigError, "batch"),
        ({"length": 8193}, ConfigError, "length"),
        ({"vocab_size": 1}, ConfigError, "vocab_size"),
        ({"n_kv": 3}, ConfigError, "n_kv must divide"),
        ({"head_dim": 16}, ConfigError, "head_dim"),
        ({"n_heads": 32, "n_kv": 1, "head_dim": 1}, ConfigError, "even"),
        ({"n_layers": 2.0}, ConfigError, "n_layers"),
        ({"chunked_lm_head_v2": True}, UnsupportedError, "chunked_lm_head_v2"),
        ({"chunked_lm_head_v2": 1}, ConfigError, "chunked_lm_head_v2"),
    ],
)
def test_impossible_configurations(change, error, message):
    with pytest.raises(error, match=message):
        LanguageModelConfig(**change)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda t: t.train_step(IDS[:1]), ShapeError, "ids must"),
        (lambda t: t.train_step(IDS[:, :-1]), ShapeError, "ids must"),
        (lambda t: t.train_step(IDS + 256), UsageError, r"ids\[0, 0\]"),
        (lambda t: t.train_step(IDS.astype(np.float32)), UsageError, "ids must hold integers"),
        (lambda t: t.train_step(None), DtypeError, "ids"),
        (lambda t: t.train_step(IDS, return_gradients=1), ConfigError, "return_gradients"),
        (lambda t: t.train_steps([], 1), UsageError, "at least one batch"),
        (lambda t: t.train_steps([IDS], 0), ConfigError, "k must"),
        (lambda t: t.logits(IDS), ShapeError, "length=32"),
        (lambda t: t.logits(IDS[:, :9], [9, 10]), UsageError, r"lengths\[1\]"),
        (lambda t: t.next_bytes(IDS[:, :9], [9]), ShapeError, "lengths"),
        (lambda t: t.evaluate(IDS[:, 1:]), ShapeError, "ids must"),
        (lambda t: setattr(t, "next_batch_index", -1), ConfigError, "next_batch_index"),
        (lambda t: LanguageModelTrainer({}, WEIGHTS), ArgumentTypeError, "config"),
        (lambda t: LanguageModelTrainer(CONFIG, {}), ShapeError, "missing"),
        (lambda t: made(numeric_mode="identical"), UnsupportedError, "identical"),
    ],
)
def test_what_is_refused_changes_nothing(call, error, message):
    trainer = made()
    with pytest.raises(error, match=message):
        call(trainer)
    assert (trainer.completed_steps, trainer.next_batch_index) == (0, 0)
    np.testing.assert_array_equal(trainer.parameters()["embed"], WEIGHTS["embed"])


def test_both_names_are_one_class():
    assert SmallByteLanguageModelTrainer is LanguageModelTrainer
