"""Saved states, accumulated steps, zero_grad, and what is loaded when."""

import threading
import time

import numpy as np
import pytest

from tests.test_lazy_import import loaded_after, roots
from trainc.core.errors import UnsupportedError, UsageError
from trainc.frontends.optimizers.adam import Adam, AdamW
from trainc.frontends.optimizers.gradients import accumulate_grads
from trainc.frontends.optimizers.sgd import SGD

SHAPES = [(3, 4), (5,), ()]
OPTIMIZERS = {
    "adamw": lambda params: AdamW(params, lr=0.1),
    "adam": lambda params: Adam(params, lr=0.1, weight_decay=0.1),
    "momentum": lambda params: SGD(params, lr=0.1, momentum=0.9),
    "plain": lambda params: SGD(params, lr=0.1),
}


def draw(seed):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(np.float32) for shape in SHAPES]


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_restored_optimizer_goes_on_with_the_same_bits(kind):
    whole, halves = draw(0), draw(0)
    optimizer, first = OPTIMIZERS[kind](whole), OPTIMIZERS[kind](halves)
    for t in range(4):
        optimizer.step(draw(10 + t))
    for t in range(2):
        first.step(draw(10 + t))
    state = first.state_dict()
    second = OPTIMIZERS[kind](halves)
    second.load_state_dict(state)
    for t in range(2, 4):
        second.step(draw(10 + t))
    assert second.t == 4
    for a, b in zip(whole, halves, strict=True):
        assert a.tobytes() == b.tobytes()


def test_a_state_is_a_copy():
    params = draw(0)
    optimizer = AdamW(params)
    before = optimizer.state_dict()
    optimizer.exp_avg[...] = 7.0
    optimizer.step(draw(1))
    assert before["t"] == 0
    assert not before["exp_avg"].any()
    assert optimizer.exp_avg.shape == (18,)
    assert not (optimizer.exp_avg == 7.0).any()


def test_the_momentum_buffers_first_step_is_remembered():
    optimizer = SGD(draw(0), momentum=0.9)
    assert optimizer.buf_initialized.tolist() == [0, 0, 0]
    optimizer.step(draw(1))
    assert optimizer.buf_initialized.tolist() == [1, 1, 1]
    assert optimizer.buf_initialized.dtype == np.int32
    plain = SGD(draw(0))
    plain.step(draw(1))
    assert plain.momentum_buffer is None
    assert plain.buf_initialized.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"kind": "Adam"}, ValueError, "must be of AdamW, got that of 'Adam'"),
        ({"t": -1}, ValueError, "t must be an integer"),
        ({"t": 1.0}, ValueError, "t must be an integer"),
        ({"exp_avg": np.zeros(17, np.float32)}, ValueError, "exp_avg must have one element for each of the 18"),
        ({"kind": np.zeros(2)}, ValueError, "must be of AdamW"),
        ({"exp_avg_sq": np.full(18, -2.0, np.float32)}, ValueError, r"exp_avg_sq .* at least 0, but \[0\] is -2.0"),
        ({"exp_avg_sq": np.zeros(18)}, TypeError, "exp_avg_sq must be a float32 array"),
        ({"lr": 1.0}, ValueError, "has the keys"),
    ],
)
def test_states_that_are_refused_change_nothing(change, error, text):
    optimizer = AdamW(draw(0))
    optimizer.step(draw(1))
    before = optimizer.state_dict()
    with pytest.raises(error, match=text):
        optimizer.load_state_dict({**before, "t": 9, "exp_avg": np.ones(18, np.float32), **change})
    after = optimizer.state_dict()
    assert after["t"] == 1
    assert after["exp_avg"].tobytes() == before["exp_avg"].tobytes()
    with pytest.raises(UsageError, match="got list"):
        optimizer.load_state_dict([])


def test_a_state_of_momentum_with_a_bad_flag_is_refused():
    optimizer = SGD(draw(0), momentum=0.5)
    state = optimizer.state_dict()
    for flags in (np.array([0, 2, 0]), np.zeros(2, np.int32), np.zeros(3)):
        with pytest.raises(ValueError, match="buf_initialized"):
            optimizer.load_state_dict({**state, "buf_initialized": flags})


def test_step_accumulated_is_a_step_with_the_sum():
    params, others = draw(0), draw(0)
    one, other = AdamW(params, accumulation_steps=4), AdamW(others)
    parts = [draw(i) for i in range(4)]
    assert one.step_accumulated(parts, 512) is None
    other.step(accumulate_grads(parts, 512))
    for a, b in zip(params, others, strict=True):
        assert a.tobytes() == b.tobytes()


def test_step_accumulated_refuses_other_counts_and_misaligned_tokens():
    params = draw(0)
    optimizer = AdamW(params, accumulation_steps=2)
    with pytest.raises(ValueError, match="accumulation_steps = 2 entries, got 4"):
        optimizer.step_accumulated([draw(i) for i in range(4)], None)
    with pytest.raises(ValueError, match="300 tokens in 2 microbatches"):
        optimizer.step_accumulated([draw(i) for i in range(2)], 300)
    assert optimizer.t == 0
    optimizer.step_accumulated([draw(i) for i in range(2)], None)
    assert optimizer.t == 1


def test_zero_grad_writes_positive_zeros():
    optimizer, grads = SGD(draw(0)), draw(1)
    optimizer.zero_grad(grads)
    assert all(g.tobytes() == bytes(g.nbytes) for g in grads)


def test_constructing_an_optimizer_loads_nothing_compiled():
    code = (
        "import numpy as np\n"
        "from trainc.frontends.optimizers.adam import AdamW\n"
        "from trainc.frontends.optimizers.sgd import SGD\n"
        "from trainc.core.schedules import WarmupCosineLR\n"
        "w = np.zeros((64, 8), np.float32)\n"
        "AdamW([w], lr_schedule=WarmupCosineLR(1e-3, 2, 10)).state_dict(); SGD(w, momentum=0.9)"
    )
    assert "iree" not in roots(loaded_after(code))


def test_threads_take_turns():
    params, count, rounds = [np.zeros(50_000, np.float32), np.zeros(7, np.float32)], 4, 25
    gradients = [np.ones_like(p) for p in params]
    seen = []

    class Rates:
        def lr_at(self, t):
            seen.append(t)
            time.sleep(1e-4)  # lets another thread in
            return 1.0

    optimizer = SGD(params, lr_schedule=Rates())

    def work() -> None:
        for _ in range(rounds):
            optimizer.step(gradients)

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == list(range(1, count * rounds + 1))
    assert optimizer.t == count * rounds
    assert all((p == -count * rounds).all() for p in params)


def test_a_step_whose_kernel_does_not_load_leaves_the_gradients(monkeypatch):
    def missing(*_):
        raise UnsupportedError("no compiler")

    monkeypatch.setattr("trainc.frontends.optimizers.optimizer.rule_kernel", missing)
    gradient = np.full(5, 3.0, np.float32)
    optimizer = SGD(np.zeros(5, np.float32))
    with pytest.raises(UnsupportedError):
        optimizer.step(gradient, max_norm=1.0)
    np.testing.assert_array_equal(gradient, 3.0)
    assert optimizer.t == 0
