"""Values of the steps: golden, and bit for bit those of the float32 model, wherever the arrays lie in memory."""

import array
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.frontends.optimizers.model import OFFSETS, Model, at_offset
from trainc.core.schedules import WarmupLinearLR
from trainc.frontends.optimizers import memory
from trainc.frontends.optimizers.adam import Adam, AdamW
from trainc.frontends.optimizers.sgd import SGD
from trainc.runtime.program import Program

KINDS = {"SGD": SGD, "Adam": Adam, "AdamW": AdamW}

GOLDEN = {
    "adamw_lr1e-3_wd0.01": (AdamW, {"lr": 1e-3, "weight_decay": 0.01}),
    "sgd_lr1e-2_mom0.9_damp0.1_wd0.01": (SGD, {"lr": 1e-2, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01}),
    "sgd_lr1e-2_maximize": (SGD, {"lr": 1e-2, "maximize": True}),
}


def floats(bits, shape=-1):
    return np.array([int(b, 16) for b in bits], np.uint32).view(np.float32).reshape(shape)


def assert_same_bits(got, wanted):
    assert len(got) == len(wanted)
    for one, other in zip(got, wanted, strict=True):  # any NaN is as good as another
        bits, wanted_bits = (np.where(np.isnan(a), np.uint32(1), a.view(np.uint32)) for a in (one, other))
        np.testing.assert_array_equal(bits, wanted_bits)


@pytest.mark.parametrize("name", GOLDEN)
def test_ten_golden_steps_are_bit_equal(golden, name):
    case = golden("optimizers")[name]
    kind, options = GOLDEN[name]
    params = [floats(t["f32_hex"], t["shape"]).copy() for t in case["w0"]]
    optimizer = kind(params, **options)
    for t, grads in enumerate(case["grads"], start=1):
        assert optimizer.step([floats(g, p.shape) for g, p in zip(grads, params, strict=True)]) is None
        if f"after_{t}" in case:
            assert_same_bits(params, [floats(a["f32_hex"], a["shape"]) for a in case[f"after_{t}"]])
    state = [floats(case[key]["f32_hex"]) for key in ("exp_avg", "exp_avg_sq")]
    if kind is AdamW:
        assert_same_bits([optimizer.exp_avg, optimizer.exp_avg_sq], state)
    elif "momentum" in options:
        assert_same_bits([optimizer.momentum_buffer], state[:1])
    assert optimizer.t == 10


def test_every_golden_run_is_checked(golden):
    assert sorted(golden("optimizers")) == sorted(GOLDEN)


def run_both(kind, options, offsets, values, gradients):
    """Steps at the offsets (parameter, gradient) and in the model; both must have the same bits."""
    params = [at_offset(v, o[0]) for v, o in zip(values, offsets, strict=True)]
    optimizer, model = KINDS[kind](params, **options), Model(kind, values, **options)
    for grads in gradients:
        placed = [at_offset(g, o[1]) for g, o in zip(grads, offsets, strict=True)]
        optimizer.step(placed)
        model.step(grads)
        assert_same_bits(placed, grads)  # untouched without clipping
        assert_same_bits(params, model.params)
    state = optimizer.state_dict()
    if kind != "SGD":
        assert_same_bits([state["exp_avg"]], [np.concatenate([a.reshape(-1) for a in model.first])])
        assert_same_bits([state["exp_avg_sq"]], [np.concatenate([a.reshape(-1) for a in model.second])])
    elif options.get("momentum"):
        assert_same_bits([state["momentum_buffer"]], [np.concatenate([a.reshape(-1) for a in model.first])])


@st.composite
def options_of(draw, kind):
    rate = st.floats(0.0, 1.0, width=32)
    options = {
        "lr": draw(rate),
        "weight_decay": draw(st.sampled_from([0.0, 0.01, 0.5])),
        "maximize": draw(st.booleans()),
    }
    if kind == "SGD":
        options["momentum"] = draw(st.sampled_from([0.0, 0.5, 0.9]))
        options["nesterov"] = bool(options["momentum"]) and draw(st.booleans())
        options["dampening"] = 0.0 if options["nesterov"] else draw(st.sampled_from([0.0, 0.1, 1.0]))
        return options
    beta = st.integers(0, 1023).map(lambda n: n / 1024)
    return {**options, "betas": (draw(beta), draw(beta)), "eps": draw(st.sampled_from([1e-8, 1e-3]))}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_options_shapes_and_offsets_are_the_model(kind, data):
    options = data.draw(options_of(kind))
    shapes = data.draw(st.lists(st.lists(st.integers(1, 9), max_size=3).map(tuple), min_size=1, max_size=3))
    offsets = [data.draw(st.tuples(st.sampled_from(OFFSETS), st.sampled_from(OFFSETS))) for _ in shapes]
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    # To where squares overflow; not to where they are subnormal, which compiled code on a CPU takes for zero.
    scale = data.draw(st.sampled_from([1.0, 1e-12, 1e6, 1e25]))

    def draw():
        return [(scale * rng.standard_normal(shape)).astype(np.float32) for shape in shapes]

    run_both(kind, options, offsets, draw(), [draw() for _ in range(3)])


@pytest.mark.parametrize("size", [1, 15, 16, 17, 4229, 100_003])
@pytest.mark.parametrize("kind", ["SGD", "momentum", "Adam", "AdamW"])
def test_every_rule_takes_memory_that_starts_anywhere(kind, size):
    """Code that took it for aligned would crash the process."""
    kind, options = ("SGD", {"momentum": 0.5}) if kind == "momentum" else (kind, {})
    values, gradient = np.random.default_rng(size).standard_normal((2, size)).astype(np.float32)
    for offset in OFFSETS:
        for grad_offset in OFFSETS:
            run_both(kind, options, [(offset, grad_offset)], [values], [[gradient]] * 2)


@pytest.mark.parametrize(("offset", "grad_offset"), [(4, 4), (16, 60), (60, 0)])
def test_large_arrays_are_worked_on_from_their_first_boundary(offset, grad_offset, monkeypatch):
    monkeypatch.setattr(memory, "SPLIT_FROM", 1000)
    values, gradient = np.random.default_rng(8).standard_normal((2, 1001)).astype(np.float32)
    parts = []
    call = Program.call
    monkeypatch.setattr(Program, "call", lambda self, name, args: parts.append(args) or call(self, name, args))
    run_both("AdamW", {}, [(offset, grad_offset)], [values], [[gradient]] * 2)
    head = (64 - offset) // 4
    assert [args["length"] for args in parts] == [head, 1001 - head] * 2
    for name in ("p", "m", "v"):
        assert parts[1][name].array.ctypes.data % 64 == 0
        assert parts[3][name] is parts[1][name]  # the handle was kept


def test_subnormals_are_zero():
    """Compiled code on a CPU flushes them."""
    optimizer = AdamW(np.ones(5, np.float32), lr=0.5)
    optimizer.step(np.full(5, 1e-20, np.float32))  # its square is subnormal
    assert not optimizer.exp_avg_sq.any()


def test_addresses_that_are_not_even_those_of_floats():
    values = np.random.default_rng(2).standard_normal(4101).astype(np.float32)
    raw = np.zeros(values.nbytes + 1, np.uint8)
    param = raw[1:].view(np.float32)
    param[...] = values
    model = Model("Adam", [values])
    optimizer = Adam(param)
    for _ in range(2):
        optimizer.step(values)
        model.step([values])
    assert_same_bits([param.copy()], model.params)


def test_other_arrays_than_those_of_numpy():
    values, gradient = [0.5, -1.0, 2.0], [1.0, 2.0, -3.0]
    model = Model("AdamW", [np.array(values, np.float32)])
    model.step([np.array(gradient, np.float32)])
    block = memoryview(bytearray(12)).cast("f")
    param = array.array("f", values)
    optimizer = AdamW(param)
    for i, value in enumerate(gradient):
        block[i] = value
    optimizer.step(block)
    assert param.tolist() == model.params[0].tolist()


def test_read_only_gradients_are_read():
    param, gradient = np.ones(9, np.float32), at_offset(np.ones(9), 0)
    gradient.flags.writeable = False
    SGD(at_offset(param, 0), lr=0.5).step(gradient)
    optimizer = SGD(param, lr=0.5)
    optimizer.step([gradient])
    assert (param == 0.5).all()
    with pytest.raises(ValueError, match="grads is written in place and its memory is read-only"):
        optimizer.step(gradient, max_norm=1.0)


def test_a_schedule_sets_the_rate_before_each_step():
    schedule = WarmupLinearLR(0.5, warmup_steps=2, total_steps=4)
    param = np.zeros(3, np.float32)
    optimizer = SGD(param, lr=7.0, lr_schedule=schedule)
    rates = []
    for _ in range(4):
        optimizer.step(np.ones(3, np.float32))
        rates.append(optimizer.lr)
    assert rates == [0.25, 0.5, 0.25, 0.0]
    assert (param == -1.0).all()


def test_lr_is_read_at_every_step():
    param = np.zeros(3, np.float32)
    optimizer = SGD(param, lr=1.0)
    for rate in (1.0, 0.25):
        optimizer.lr = rate
        optimizer.step(np.ones(3, np.float32))
    assert (param == -1.25).all()
    with pytest.raises(ValueError, match="lr must be"):
        optimizer.lr = -1.0
    assert optimizer.lr == 0.25


@pytest.mark.parametrize("resident", [None, True, False])
def test_resident_changes_no_bit(resident):
    values = np.random.default_rng(5).standard_normal(4097).astype(np.float32)
    param, model = values.copy(), Model("AdamW", [values])
    optimizer = AdamW(param, resident=resident)
    for _ in range(3):
        optimizer.step(values)
        model.step([values])
    assert_same_bits([param], model.params)


def test_optimizers_in_several_threads_do_not_disturb_each_other():
    values = np.random.default_rng(6).standard_normal(1001).astype(np.float32)
    model = Model("AdamW", [values])
    for _ in range(20):
        model.step([values])
    params = [at_offset(values, offset) for offset in OFFSETS]

    def train(param):
        optimizer = AdamW(param)
        for _ in range(20):
            optimizer.step(values)

    threads = [threading.Thread(target=train, args=(param,)) for param in params]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_same_bits(params, model.params * len(params))
