"""The training step against the same mathematics in NumPy, and what it does with values that are not finite."""

import numpy as np
import pytest

from tests.runtime import toy
from trainc.core.errors import ArtifactError, ConfigError, NumericsError
from trainc.core.state_table import StateTable
from trainc.runtime.norms import combine


def batch(step, number: int, ignored: float = 0.2):
    rng = np.random.default_rng(number)
    ids, targets = rng.integers(0, toy.VOCAB, (2, step.driver.rows, toy.LENGTH)).astype(np.int32)
    targets[rng.random(targets.shape) < ignored] = -100
    return {"ids": ids, "targets": targets}


def snapshot(state):
    return (state.params.flat.tobytes(), state.m.flat.tobytes(), state.v.flat.tobytes(), state.step, state.random)


@pytest.mark.parametrize("accumulation_steps", [1, 2, 4, 8])
def test_ten_steps_follow_numpy(new_step, accumulation_steps):
    step = new_step(accumulation_steps)
    params = {name: view.astype(np.float64) for name, view in step.state.params.views().items()}
    m, v = ({name: np.zeros_like(view) for name, view in params.items()} for _ in range(2))
    for number in range(1, 11):
        inputs = batch(step, number)
        loss, grads = toy.reference_loss_and_gradients(params, **inputs)
        norm = toy.reference_update(params, m, v, grads, step.optimizer, step.lr_at(number), number)
        result = step.run(inputs)
        assert (result.step, result.ignored_all) == (number, False)
        assert result.lr == step.schedule.lr_at(number)
        assert result.tokens == step.driver.rows * toy.LENGTH
        np.testing.assert_allclose(result.loss, loss, rtol=3e-6)  # float32 sums of up to 128 terms, ten steps
        np.testing.assert_allclose(result.grad_norm, norm, rtol=1e-5)
    for name, view in step.state.params.views().items():
        np.testing.assert_allclose(view, params[name], atol=2e-4)  # Adam's ratio magnifies tiny gradients' rounding


@pytest.mark.parametrize(("accumulation_steps", "buffers"), [(1, 1), (2, 2), (4, 3), (8, 4)])
def test_few_gradient_buffers_are_kept(new_step, accumulation_steps, buffers):
    step = new_step(accumulation_steps)
    for number in range(3):
        step.run(batch(step, number))
        assert len(step._free) == buffers


def test_freed_memory_goes_back_before_the_first_step_only(new_step, monkeypatch):
    calls = []
    monkeypatch.setattr("trainc.runtime.step.give_back_freed_memory", lambda: calls.append(1))
    step = new_step(1)
    for number in range(3):
        step.run(batch(step, number))
    assert calls == [1]


def test_gradients_are_added_in_adjacent_pairs(new_step):
    step = new_step(4)
    inputs = batch(step, 0)
    loss, grads = step.gradients(inputs)
    calls = step.driver.bind_step(inputs, step.state.random).calls
    parts = []
    for call in calls:
        buffer = step.program.new_state("params")
        part_loss = step.program.call("gradients", {"params": step.state.params, "grads": buffer, **call})["loss"]
        parts.append((np.float32(part_loss), buffer.flat.copy()))
    (a, ga), (b, gb), (c, gc), (d, gd) = parts
    assert np.float32(loss) == (a + b) + (c + d)
    assert grads.flat.tobytes() == ((ga + gb) + (gc + gd)).tobytes()


def test_stale_buffers_do_not_matter(new_step):
    clean, dirty = new_step(4), new_step(4)
    for number in range(5):
        for buffer in dirty._free:
            buffer.flat.fill(np.nan)
        clean.run(batch(clean, number))
        dirty.run(batch(dirty, number))
    assert snapshot(clean.state) == snapshot(dirty.state)


def test_twenty_runs_are_bit_equal(new_step):
    seen = set()
    step = new_step(2)
    for _ in range(20):
        step.state.start(*step.driver.initial_parameters(0))
        for number in range(5):
            step.run(batch(step, number))
        seen.add(snapshot(step.state))
    assert len(seen) == 1


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_not_finite_stops_the_step(new_step, value):
    step = new_step(2)
    step.run(batch(step, 0))
    step.state.params.views()["W"][3, 4] = value
    before = snapshot(step.state)
    with pytest.raises(NumericsError, match=r"step 2: .*first weight that is not finite is 'W'"):
        step.run({"ids": np.full((4, 8), 3, np.int32), "targets": np.full((4, 8), 4, np.int32)})
    assert snapshot(step.state) == before
    step.state.params.views()["W"][3, 4] = 0.1
    assert step.run(batch(step, 1)).step == 2


def test_a_gradient_that_is_not_finite_is_named(new_step, monkeypatch):
    step = new_step(1)
    real = step.program.call

    def damaged(name, arguments):
        results = real(name, arguments)
        if name == "gradients":
            arguments["grads"].views()["b"][5] = np.inf
        return results

    monkeypatch.setattr(step.program, "call", damaged)
    before = snapshot(step.state)
    with pytest.raises(NumericsError, match="the loss is finite; the first gradient that is not finite is that of 'b'"):
        step.run(batch(step, 0))
    assert snapshot(step.state) == before


def test_all_targets_ignored_still_takes_the_step(new_step):
    step = new_step(2)
    inputs = batch(step, 0)
    inputs["targets"][:] = -100
    before = step.state.params.flat.copy()
    result = step.run(inputs)
    assert (result.loss, result.grad_norm, result.ignored_all, result.step) == (0.0, 0.0, True, 1)
    assert not np.array_equal(before, step.state.params.flat)  # weight decay


def test_the_clip_factor_is_reported(new_step):
    step = new_step(1, optimizer={**toy.OPTIMIZER, "max_norm": 1e-3})
    result = step.run(batch(step, 0))
    assert result.clip == pytest.approx(1e-3 / result.grad_norm, rel=1e-2)
    assert new_step(1, optimizer={**toy.OPTIMIZER, "max_norm": None}).run(batch(step, 0)).clip == 1.0


def test_without_a_schedule_the_rate_is_the_optimizers(new_step):
    step = new_step(1, schedule=None)
    assert step.run(batch(step, 0)).lr == float(np.float32(0.05))


def test_settings_are_checked(new_step):
    with pytest.raises(ArtifactError, match=r"settings\.optimizer is missing"):
        new_step(1, optimizer=None)
    with pytest.raises(ArtifactError, match=r"unknown field.*momentum"):
        new_step(1, optimizer={"momentum": 0.9})
    with pytest.raises(ArtifactError, match=r"settings\.optimizer\.betas"):
        new_step(1, optimizer={"betas": [2, 3]})
    for schedule in ({}, True, "cosine", {"kind": "cosine", "peak_lr": "high"}):
        with pytest.raises(ArtifactError, match=r"settings\.schedule"):
            new_step(1, schedule=schedule)
    with pytest.raises(ConfigError, match="power of two, got 3"):
        new_step(1, batch={"rows": 6, "length": 8, "accumulation_steps": 3})


def test_norms_neither_overflow_nor_vanish(program):
    grads = program.new_state("params")
    for scale in (1e20, 1e-30, 3e38, 1e-44):
        values = np.full(100, scale, np.float32)
        grads.clear()
        grads.flat[:100] = values
        parts = program.call("norms", {"grads": grads})
        norms = combine(grads.table, parts["block_max"], parts["block_sumsq"])
        assert norms.total == pytest.approx(10 * float(values[0]), rel=1e-6)
        assert norms.first_not_finite is None


def test_norms_are_per_tensor():
    table = StateTable.build("params", [("a", (3,)), ("b", (65,)), ("c", ())])
    norms = combine(table, np.array([2, 1, 3, 4], np.float32), np.array([1, 4, 1, 1], np.float32))
    np.testing.assert_allclose(norms.values, [2, np.sqrt(4 + 9), 4])
    assert norms.names == ("a", "b", "c")
    bad = combine(table, np.array([2, 1, np.inf, np.nan], np.float32), np.array([1, 1, np.nan, 1], np.float32))
    assert bad.first_not_finite == "b"
