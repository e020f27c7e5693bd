"""SambaStack training: golden values, gradients, accumulation, dropout, schedules."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.samba import tiny
from tests.samba.stacks import TINY, Halving, batch, snapshot, stack
from trainc.core.errors import NumericsError
from trainc.core.philox import keep_mask
from trainc.core.schedules import ConstantLR, schedule_from_config
from trainc.frontends.generator import Generator
from trainc.frontends.samba.config import SambaConfig
from trainc.frontends.samba.driver import SambaDriver
from trainc.frontends.samba.stack import SambaStack
from trainc.runtime.artifact import Artifact
from trainc.runtime.device import open_device
from trainc.runtime.program import Program
from trainc.runtime.step import TrainStep

IDS, TARGETS = batch()

# float32 sums of a batch's terms in another order: a few units of 2**-24 of the largest, measured 1e-7.
ROUNDING = 2e-6


@pytest.mark.parametrize("name", ["mamba3_attn_tied", "doc_example_2xmamba3_acc1", "mamba3_L70"])
def test_golden(name: str, golden: Callable[[str], Any]) -> None:
    """Tolerances as in test_golden: the golden values are float32 results of another implementation."""
    case = golden("samba")["samba"][name]
    options = dict(case["kw"])
    if "lr_schedule" in options:
        options["lr_schedule"] = schedule_from_config(options["lr_schedule"])
    made = SambaStack(SambaConfig.from_dict(case["config"]), generator=Generator(7), **options)
    assert made.generator.state_dict() == case["rng_after_init"]
    assert [[name, list(shape)] for name, shape in zip(made.names, made.shapes, strict=True)] == case["registry"]
    ids = np.array(case["ids"])
    inputs, targets = ids[:, :-1], ids[:, 1:]
    logits = made.forward(inputs)
    np.testing.assert_allclose(logits[0, -1, :8], case["logits"]["row0_last_first8"], rtol=0, atol=2e-6)
    if made.config.d_model == 32:  # one case is enough of a kernel that the others do not need
        assert made.loss(inputs, targets) == pytest.approx(case["loss"], abs=1e-6)
    loss, gradients = made.loss_and_grads(inputs, targets)
    assert loss == pytest.approx(case["loss_and_grads"]["loss"], abs=1e-6)
    norms = {n: float(np.linalg.norm(g.astype(np.float64))) for n, g in zip(made.names, gradients, strict=True)}
    assert norms == pytest.approx(case["loss_and_grads"]["grad_l2"], rel=5e-5)
    for wanted in case["steps"]:
        found = made.train_step(inputs, targets)
        assert found.keys() == wanted.keys()
        assert (found["step"], found["lr"]) == (wanted["step"], wanted["lr"])
        assert found["loss"] == pytest.approx(wanted["loss"], abs=5e-6)
        if wanted["total_norm"] is None:
            assert found["total_norm"] is None
        else:
            assert found["total_norm"] == pytest.approx(wanted["total_norm"], rel=5e-5)
    assert made.generator.state_dict() == case["rng_after"]
    assert made.optimizer.t == len(case["steps"])
    assert made.optimizer.lr == made.last_["lr"]


def test_a_step_is_the_step_of_the_artifact(tiny_artifact: Path) -> None:
    """The same bits as TrainStep with the compiled artifact: dropout, accumulation, clipping, schedule and update."""
    artifact = Artifact.open(tiny_artifact)
    driver = SambaDriver(artifact.manifest)
    trainer = TrainStep(Program(artifact, open_device()), driver)
    trainer.state.start(*driver.initial_parameters(7))
    schedule = schedule_from_config(tiny.SCHEDULE)
    made = stack(lr_schedule=schedule, max_norm=1.0, accumulation_steps=2, lr=tiny.OPTIMIZER["lr"])
    for number in range(5):
        ids, targets = batch(seed=number)
        wanted = trainer.run({"ids": ids, "targets": targets})
        found = made.train_step(ids.tolist(), targets.astype(np.int16))
        assert found == {
            "loss": wanted.loss,
            "lr": wanted.lr,
            "step": wanted.step,
            "total_norm": wanted.grad_norm,
        }
    for name, view in trainer.state.params.views().items():
        assert view.tobytes() == made.parameters()[name].tobytes(), name
    assert made.generator.counter == trainer.state.random.counter


@pytest.mark.parametrize("kind", [np.int64, np.uint8, list])
def test_ids_of_any_integer_kind_are_the_same(kind: Any) -> None:
    made = stack()
    wanted, _ = made.loss_and_grads(IDS, TARGETS)
    ids = IDS.tolist() if kind is list else IDS.astype(kind)
    assert made.loss_and_grads(ids, TARGETS)[0] == wanted


def test_accumulation_changes_rounding_only() -> None:
    whole, cut = stack(max_norm=1.0), stack(max_norm=1.0, accumulation_steps=2)
    for number in range(5):
        ids, targets = batch(seed=number)
        one, two = whole.train_step(ids, targets), cut.train_step(ids, targets)
        # AdamW divides by the size of each gradient, so later weights differ by more than the gradients did (2.5e-6).
        assert one["loss"] == pytest.approx(two["loss"], abs=5 * ROUNDING if number else ROUNDING)
        assert one["total_norm"] == pytest.approx(two["total_norm"], rel=1e-5)
    assert whole.generator.counter == cut.generator.counter == 12 + 5


def test_parts_of_a_batch_add_up_to_the_step() -> None:
    """num_items, dropout_stream and token_offset make a part's gradient its share of the step's."""
    made = stack(accumulation_steps=2)
    count = int((TARGETS != -100).sum())
    stream = made.generator.counter
    parts = [
        made.loss_and_grads(IDS[rows], TARGETS[rows], count, stream, rows.start * tiny.LENGTH)
        for rows in (slice(0, 2), slice(2, 4))
    ]
    whole_loss, whole = made.loss_and_grads(IDS, TARGETS, dropout_stream=stream)
    for both, one in zip(zip(parts[0][1], parts[1][1], strict=True), whole, strict=True):
        np.testing.assert_allclose(both[0] + both[1], one, rtol=1e-4, atol=ROUNDING)
    result = made.train_step(IDS, TARGETS)
    assert result["loss"] == parts[0][0] + parts[1][0]
    assert result["loss"] == pytest.approx(whole_loss, abs=ROUNDING)
    other, _ = made.loss_and_grads(IDS, TARGETS, dropout_stream=stream + 1)
    assert other != whole_loss


def test_the_mask_is_the_generator_s() -> None:
    """An element of an embedding that was dropped has no gradient."""
    made = stack()
    ids, targets = np.arange(32).reshape(4, 8), np.full((4, 8), 3)
    _, gradients = made.loss_and_grads(ids, targets, dropout_stream=9, token_offset=5)
    d_embedding = gradients[0][:32].reshape(-1)  # untied: row i is the gradient of token i's only appearance
    keep = keep_mask(made.generator.seed, 9, d_embedding.size, TINY.dropout, 5 * TINY.d_model)
    np.testing.assert_array_equal(d_embedding != 0, keep)


def test_only_training_drops() -> None:
    made = stack()
    loss = made.loss(IDS, TARGETS)
    assert made.loss_and_grads(IDS, TARGETS)[0] == pytest.approx(loss, abs=ROUNDING)
    assert abs(made.train_step(IDS, TARGETS)["loss"] - loss) > 100 * ROUNDING


def test_without_a_target_the_step_is_taken_and_flagged() -> None:
    made = stack(max_norm=1.0)
    before = made.flat.copy()
    found = made.train_step(IDS, np.full((4, 8), -100))
    assert found == {"loss": 0.0, "lr": made.optimizer.lr, "step": 1, "total_norm": 0.0, "ignored_all": True}
    np.testing.assert_allclose(made.flat, before * (1 - 1e-3 * 0.01), rtol=1e-6)  # weight decay alone
    assert not made.optimizer.exp_avg.any()


def test_num_items_divides() -> None:
    made = stack()
    loss, gradients = made.loss_and_grads(IDS, TARGETS)
    count = int((TARGETS != -100).sum())
    half, halves = made.loss_and_grads(IDS, TARGETS, num_items=2 * count)
    assert half == pytest.approx(loss / 2, rel=1e-6)
    np.testing.assert_allclose(halves[0], gradients[0] / 2, rtol=1e-5, atol=1e-9)
    assert made.loss_and_grads(IDS, np.full((4, 8), -100), num_items=5)[0] == 0.0


def test_gradients_are_the_caller_s_own() -> None:
    made = stack()
    before = snapshot(made)
    _, first = made.loss_and_grads(IDS, TARGETS)
    kept = [gradient.copy() for gradient in first]
    made.loss_and_grads(IDS[::-1], TARGETS)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(first, kept, strict=True))
    assert snapshot(made) == before


def test_a_step_that_is_not_finite_changes_nothing() -> None:
    made = stack()
    made.train_step(IDS, TARGETS)
    made.parameters()["norm_f.weight"][3] = np.inf
    before = snapshot(made)
    with pytest.raises(NumericsError, match=r"step 2: .*'norm_f.weight'"):
        made.train_step(IDS, TARGETS)
    assert snapshot(made) == before


def test_any_object_gives_the_rates() -> None:
    made = stack(lr_schedule=Halving())
    rates = [made.train_step(IDS, TARGETS)["lr"] for _ in range(3)]
    assert rates == [float(np.float32(0.01 / 2**t)) for t in (1, 2, 3)]
    assert made.optimizer.lr == rates[-1]


def test_a_rate_that_is_not_usable_is_refused_and_changes_nothing() -> None:
    schedule = ConstantLR(0.01)
    made = stack(lr_schedule=schedule)
    made.train_step(IDS, TARGETS)
    before = snapshot(made)
    schedule.lr_at = lambda t: float("nan")  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="rate of step 2"):
        made.train_step(IDS, TARGETS)
    assert snapshot(made) == before


def test_the_rate_can_be_set_between_steps() -> None:
    made = stack()
    made.train_step(IDS, TARGETS)
    made.optimizer.lr = 0.5
    assert made.train_step(IDS, TARGETS)["lr"] == 0.5
    with pytest.raises(ValueError, match="lr"):
        made.optimizer.lr = -1.0


def test_the_caller_may_draw_between_steps() -> None:
    one, two = stack(), stack()
    one.train_step(IDS, TARGETS)
    two.generator.uniform(3)
    assert two.train_step(IDS, TARGETS)["loss"] != one.last_["loss"]
    assert two.generator.counter == one.generator.counter + 1
