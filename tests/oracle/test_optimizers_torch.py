"""Optimizers and clipping against torch on the CPU, over random options."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainc.frontends.optimizers.adam import Adam, AdamW
from trainc.frontends.optimizers.gradients import clip_grad_norm_
from trainc.frontends.optimizers.sgd import SGD

pytestmark = pytest.mark.oracle

STEPS = 5
KINDS = {"SGD": (SGD, torch.optim.SGD), "Adam": (Adam, torch.optim.Adam), "AdamW": (AdamW, torch.optim.AdamW)}

# Both compute in float32, in other orders and torch with float64 bias corrections. A step moves a parameter by lr times
# a number below ten here; its relative error is a few dozen roundings of 2^-24, and 1 - beta2^t in float32 loses up to
# 2^-24 / (1 - beta2) <= 1.2e-4 of itself, half of that after the square root. The parameter itself is rounded once a
# step (values of order one: 2^-24).
RELATIVE_TO_MOVE = 1e-4
ROUNDING = STEPS * 4 * 2.0**-24


@st.composite
def options_of(draw, kind):
    options = {"lr": draw(st.sampled_from([1e-3, 0.01, 0.1])), "weight_decay": draw(st.sampled_from([0.0, 0.01, 0.3]))}
    options["maximize"] = draw(st.booleans())
    if kind == "SGD":
        options["momentum"] = draw(st.sampled_from([0.0, 0.5, 0.9]))
        options["nesterov"] = bool(options["momentum"]) and draw(st.booleans())
        options["dampening"] = 0.0 if options["nesterov"] else draw(st.sampled_from([0.0, 0.1]))
        return options
    betas = (draw(st.floats(0.0, 0.95)), draw(st.floats(0.5, 0.9995)))
    return {**options, "betas": betas, "eps": draw(st.sampled_from([1e-8, 1e-4]))}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_five_steps(kind, data):
    options = data.draw(options_of(kind))
    shapes = data.draw(st.lists(st.lists(st.integers(1, 7), max_size=3).map(tuple), min_size=1, max_size=3))
    max_norm = data.draw(st.sampled_from([None, 0.5, 1e3]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    ours = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    theirs = [torch.nn.Parameter(torch.tensor(p)) for p in ours]
    optimizer, peer = KINDS[kind][0](ours, **options), KINDS[kind][1](theirs, **options)
    for _ in range(STEPS):
        grads = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
        for p, g in zip(theirs, grads, strict=True):
            p.grad = torch.tensor(g)
        if max_norm is not None:
            norm = torch.nn.utils.clip_grad_norm_(theirs, max_norm)
            peer.step()
            assert optimizer.step(grads, max_norm=max_norm) == pytest.approx(norm.item(), rel=1e-6)
        else:
            peer.step()
            optimizer.step(grads)
    moved = STEPS * 10 * options["lr"]
    for p, q in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(p, q.detach().numpy(), rtol=ROUNDING, atol=ROUNDING + moved * RELATIVE_TO_MOVE)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=4),
    scale=st.sampled_from([1.0, 1e-6, 1e6]),
    max_norm=st.sampled_from([0.1, 1.0, 1e9]),
    seed=st.integers(0, 99),
)
def test_clipping(sizes, scale, max_norm, seed):
    rng = np.random.default_rng(seed)
    grads = [(scale * rng.standard_normal(n)).astype(np.float32) for n in sizes]
    params = [torch.nn.Parameter(torch.zeros(n)) for n in sizes]
    for p, g in zip(params, grads, strict=True):
        p.grad = torch.tensor(g)
    wanted = torch.nn.utils.clip_grad_norm_(params, max_norm).item()
    # torch adds up to 1200 squares in float32; ours are exact to a few roundings.
    assert clip_grad_norm_(grads, max_norm) == pytest.approx(wanted, rel=1e-6)
    for p, g in zip(params, grads, strict=True):
        np.testing.assert_allclose(g, p.grad.numpy(), rtol=2e-6)


def test_torch_tensors_are_updated_in_place():
    param, grad = torch.ones(5000), torch.full((5000,), 2.0)
    optimizer = SGD([param], lr=0.5)
    optimizer.step([grad])
    assert (param == 0).all()
    assert optimizer.step(grad, max_norm=1.0) == pytest.approx(2 * 5000**0.5)
    assert grad.norm().item() == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (torch.ones(3, dtype=torch.bfloat16), TypeError),
        (torch.ones(3, dtype=torch.float16), TypeError),
        (torch.ones(3, dtype=torch.float64), TypeError),
        (torch.eye(3).to_sparse(), TypeError),
        (torch.ones(3, requires_grad=True), ValueError),
        (torch.ones(4, 4).T[1:], ValueError),
        (torch.ones(0), ValueError),
    ],
)
def test_torch_tensors_that_are_refused(value, error):
    with pytest.raises(error):
        SGD([value])
