"""What the optimizers and functions refuse: the type of error, its text, and that nothing was changed."""

import numpy as np
import pytest

from trainc.core.errors import TraincError
from trainc.frontends.optimizers.adam import Adam, AdamW
from trainc.frontends.optimizers.gradients import accumulate_grads, accumulation_is_aligned, clip_grad_norm_
from trainc.frontends.optimizers.sgd import SGD


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


def read_only(*shape):
    array = ones(*shape)
    array.flags.writeable = False
    return array


class NoSchedule:
    lr_at = 3


class BadSchedule:
    def lr_at(self, t):
        return float("nan")


CONSTRUCTORS = [
    (AdamW, {"amsgrad": True}, TypeError, "amsgrad is not supported"),
    (Adam, {"foreach": None}, TypeError, "foreach is not supported"),
    (SGD, {"fused": False}, TypeError, "fused is not supported"),
    (SGD, {"capturable": True}, TypeError, "capturable is not supported"),
    (SGD, {"differentiable": True}, TypeError, "differentiable is not supported"),
    (AdamW, {"momentum": 0.9}, TypeError, "AdamW: the argument momentum does not exist"),
    (AdamW, {"lr": -1.0}, ValueError, "lr must be"),
    (AdamW, {"lr": "fast"}, ValueError, "lr must be"),
    (AdamW, {"betas": (0.9, 1.0)}, ValueError, r"betas\[1\]"),
    (Adam, {"betas": (-0.1, 0.9)}, ValueError, r"betas\[0\]"),
    (AdamW, {"eps": -1e-8}, ValueError, "eps"),
    (AdamW, {"weight_decay": float("inf")}, ValueError, "weight_decay"),
    (SGD, {"momentum": -0.5}, ValueError, "momentum"),
    (SGD, {"nesterov": True}, ValueError, "nesterov needs momentum above 0"),
    (SGD, {"nesterov": True, "momentum": 0.9, "dampening": 0.1}, ValueError, "nesterov needs"),
    (SGD, {"nesterov": 1, "momentum": 0.9}, TypeError, "nesterov must be True or False"),
    (AdamW, {"lr_schedule": 1e-3}, TypeError, r"lr_at\(t\), got float"),
    (AdamW, {"lr_schedule": NoSchedule()}, TypeError, "NoSchedule"),
    (AdamW, {"accumulation_steps": 3}, ValueError, "power of two, got 3"),
    (AdamW, {"accumulation_steps": 0}, ValueError, "accumulation_steps"),
    (AdamW, {"maximize": 1}, TypeError, "maximize must be True or False"),
    (AdamW, {"maximize": None}, TypeError, "maximize must be"),
    (AdamW, {"resident": 0}, TypeError, "resident must be None, True or False"),
]


@pytest.mark.parametrize(("kind", "options", "error", "text"), CONSTRUCTORS)
def test_constructor_arguments(kind, options, error, text):
    with pytest.raises(error, match=text) as caught:
        kind([ones(2, 3)], **options)
    assert isinstance(caught.value, TraincError)


SHARED = ones(8)

PARAMS = [
    (ones(3, dtype=np.float64), TypeError, "params must be a float32 array, got float64"),
    ([ones(3), ones(3, dtype=np.float16)], TypeError, r"params\[1\] must be a float32 array, got float16"),
    ([ones(3, dtype=bool)], TypeError, r"params\[0\] .* got bool"),
    ([np.ones(3, np.dtype("V2"))], TypeError, r"params\[0\]"),  # what bfloat16 looks like to NumPy
    ([1.0, 2.0], TypeError, r"params\[0\] must be a NumPy array .* got float"),
    ([None], TypeError, "NoneType"),
    ({"params": [ones(3)]}, TypeError, "parameter groups are not supported"),
    ([{"params": [ones(3)], "lr": 0.1}], TypeError, "parameter groups are not supported"),
    ([], ValueError, "at least one array"),
    ([ones(0)], ValueError, r"params\[0\] must have at least one element"),
    ([ones(3, 0)], ValueError, "at least one element"),
    ([read_only(3)], ValueError, r"params\[0\] is written in place and its memory is read-only"),
    ([memoryview(bytes(8)).cast("f")], ValueError, "read-only"),
    ([ones(4, 4)[:, 1:]], ValueError, r"params\[0\] must be C-contiguous"),
    ([ones(4, 4).T[1:]], ValueError, "C-contiguous"),
    ([np.broadcast_to(ones(1), (3,))], ValueError, "C-contiguous"),
    ([SHARED, ones(3), SHARED], ValueError, r"params\[0\] and params\[2\] share memory"),
    ([SHARED[:5], SHARED[4:]], ValueError, r"params\[0\] and params\[1\] share memory"),
    ([SHARED[4:], SHARED.reshape(2, 4)], ValueError, "share memory"),
]


@pytest.mark.parametrize(("params", "error", "text"), PARAMS)
def test_parameters(params, error, text):
    with pytest.raises(error, match=text):
        SGD(params)


def test_neighbours_in_one_buffer_are_separate():
    flat = np.zeros(20, np.float32)
    optimizer = SGD([flat[:7], flat[7:]], lr=1.0)
    grads = ones(20)
    optimizer.step([grads[:7], grads[7:]])
    assert (flat == -1.0).all()


def bad_grads(params):
    nan, inf = ones(3, 2), ones(4)
    nan[2, 1], inf[0] = np.nan, -np.inf
    return [
        ([ones(3, 2)], {}, ValueError, "each of the 2 params, got 1"),
        ([ones(3, 2), ones(4), ones(4)], {}, ValueError, "each of the 2 params, got 3"),
        (ones(3, 2), {}, ValueError, "each of the 2 params, got 1"),
        ([ones(2, 3), ones(4)], {}, ValueError, r"grads\[0\] must have the shape of params\[0\], \(3, 2\)"),
        ([ones(3, 2), ones(5)], {}, ValueError, r"grads\[1\] must have the shape of params\[1\]"),
        ([ones(3, 2), ones(4, dtype=np.float64)], {}, TypeError, r"grads\[1\] .* got float64"),
        ([ones(3, 2), None], {}, TypeError, "NoneType"),
        ([ones(2, 3).T, ones(4)], {}, ValueError, "C-contiguous"),
        ([ones(3, 2), params[1]], {}, ValueError, r"params\[1\] and grads\[1\] share memory"),
        ([SHARED[:6].reshape(3, 2), SHARED[4:]], {}, ValueError, r"grads\[0\] and grads\[1\] share memory"),
        ([ones(3, 2), read_only(4)], {"max_norm": 1.0}, ValueError, r"grads\[1\] .* read-only"),
        ([ones(3, 2), inf], {"max_norm": 1.0}, ValueError, r"grads\[1\] is not finite"),
        ([nan, inf], {"max_norm": 1.0}, ValueError, r"grads\[0\] is not finite"),
        ([nan, inf], {"max_norm": 1.0}, ArithmeticError, "not finite"),
        ([ones(3, 2), ones(4)], {"max_norm": 0.0}, ValueError, "max_norm"),
        ([ones(3, 2), ones(4)], {"max_norm": -1.0}, ValueError, "max_norm"),
        ([ones(3, 2), ones(4)], {"max_norm": float("nan")}, ValueError, "max_norm"),
    ]


@pytest.mark.parametrize("index", range(len(bad_grads([ones(3, 2), ones(4)]))))
def test_gradients_that_are_refused_change_nothing(index):
    params = [2 * ones(3, 2), 2 * ones(4)]
    optimizer = AdamW(params, lr=0.5)
    optimizer.step([ones(3, 2), ones(4)])
    grads, options, error, text = bad_grads(params)[index]
    arrays = [*params, *(g for g in grads if g is not None)]
    before, state = [a.tobytes() for a in arrays], optimizer.state_dict()
    with pytest.raises(error, match=text) as caught:
        optimizer.step(grads, **options)
    assert isinstance(caught.value, TraincError)
    assert [a.tobytes() for a in arrays] == before
    after = optimizer.state_dict()
    assert after.pop("t") == state.pop("t") == 1
    assert [np.asarray(a).tobytes() for a in after.values()] == [np.asarray(a).tobytes() for a in state.values()]


def test_a_bad_rate_of_a_schedule_changes_nothing():
    param, grad = ones(3), 5 * ones(3)
    optimizer = AdamW(param, lr_schedule=BadSchedule())
    with pytest.raises(ValueError, match=r"lr_schedule\.lr_at\(t\)"):
        optimizer.step(grad, max_norm=1.0)
    assert (param == 1).all()
    assert (grad == 5).all()
    assert optimizer.t == 0


CLIP = [
    ({"max_norm": 0}, ValueError, "max_norm"),
    ({"max_norm": -1.0}, ValueError, "max_norm"),
    ({"max_norm": True}, ValueError, "max_norm"),
    ({"norm_type": float("inf")}, NotImplementedError, "norm_type must be 2.0, got inf"),
    ({"norm_type": 1}, NotImplementedError, "norm_type"),
    ({"norm_type": "2"}, NotImplementedError, "norm_type"),
    ({"error_if_nonfinite": False}, NotImplementedError, "error_if_nonfinite"),
    ({"foreach": True}, TypeError, "'foreach'"),
    ({"numeric_mode": "bogus"}, ValueError, "numeric_mode"),
    ({"numeric_mode": "identical"}, NotImplementedError, "identical"),
    ({"grads": ones(3, dtype=np.float64)}, TypeError, "float64"),
    ({"grads": [read_only(3)]}, ValueError, "read-only"),
    ({"grads": [ones(0)]}, ValueError, "at least one element"),
    ({"grads": [ones(4, 4)[::2]]}, ValueError, "C-contiguous"),
    ({"grads": [SHARED, SHARED]}, ValueError, "share memory"),
]


@pytest.mark.parametrize(("change", "error", "text"), CLIP)
def test_clip_grad_norm(change, error, text):
    with pytest.raises(error, match=text):
        clip_grad_norm_(**{"grads": [5 * ones(3)], "max_norm": 1.0, **change})


ACCUMULATE = [
    ([ones(3)] * 3, None, ValueError, "power of two, got 3"),
    ([], None, ValueError, "power of two, got 0"),
    ([ones(3), ones(4)], None, ValueError, r"microbatch_grads\[1\]: array 0 must have shape \(3,\)"),
    ([[ones(3)], [ones(3), ones(3)]], None, ValueError, "structure"),
    ([[ones(3)], ones(3)], None, ValueError, "structure"),
    ([ones(3), ones(3, dtype=np.float64)], None, TypeError, "float64"),
    ([ones(3), ones(3)], 300, ValueError, "300 tokens in 2 microbatches"),
    ([ones(3)], 300, ValueError, "300 tokens in 1 microbatches"),
    ([ones(3)], 0, ValueError, "tokens"),
]


@pytest.mark.parametrize(("entries", "tokens", "error", "text"), ACCUMULATE)
def test_accumulate_grads(entries, tokens, error, text):
    with pytest.raises(error, match=text):
        accumulate_grads(entries, tokens)


def test_accumulation_is_aligned():
    for arguments in ((0, 1), (128, 0), (1.5, 1), (True, 1)):
        with pytest.raises(ValueError, match="must be an integer of at least 1"):
            accumulation_is_aligned(*arguments)
    with pytest.raises(ValueError, match="numeric_mode"):
        accumulation_is_aligned(128, 1, numeric_mode="bogus")
    with pytest.raises(NotImplementedError, match="identical"):
        accumulate_grads([ones(3)], None, numeric_mode="identical")
