"""The torch peer in float64 against the golden values, and its two forms of the mixer against each other.

What agrees here is the maths that every other test and the speed comparison rest on: the golden values come from an
implementation with backward passes written by hand, the peer's gradients from autograd.
"""

import numpy as np
import pytest
import torch

from benchmarks.peers import samba_torch
from benchmarks.peers.samba_torch_decode import Decoder
from trainc.core.schedules import ConstantLR, schedule_from_config
from trainc.frontends.generator import Generator
from trainc.frontends.samba.config import SambaConfig
from trainc.frontends.samba.init import initial_weights

pytestmark = pytest.mark.oracle

STACKS = ("mamba3_attn_tied", "doc_example_2xmamba3_acc1", "mamba3_L70")
FORMS = ("chunked", "serial")

# The golden values were computed in float32; they are this far from exact ones at most.
VALUE_TOLERANCE = 2e-6
NORM_TOLERANCE = 5e-5
# Float32 rounding as above, grown by up to eight AdamW steps.
STEP_TOLERANCE = 5e-6
# Both forms in float64 on values of order one: a few hundred roundings of 1.1e-16.
FORM_TOLERANCE = 1e-11


def peer_of(entry, dtype=torch.float64):
    config = SambaConfig.from_dict(entry["config"])
    weights = samba_torch.weights_from_numpy(initial_weights(config, Generator(7)), dtype)
    return samba_torch.PeerConfig.from_dict(config.to_dict()), weights


def batch_of(entry):
    ids = torch.tensor(entry["ids"])
    return ids[:, :-1], ids[:, 1:]


def gradients(loss, tensors):
    return dict(zip(tensors, torch.autograd.grad(loss, list(tensors.values())), strict=True))


def assert_norms(grads, expected):
    got = {name: grad.norm().item() for name, grad in grads.items()}
    assert got == pytest.approx(expected, rel=NORM_TOLERANCE, abs=0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stack", STACKS)
def test_logits_loss_and_gradients_are_the_golden_ones(golden, stack, form):
    entry = golden("samba")["samba"][stack]
    config, weights = peer_of(entry)
    ids, targets = batch_of(entry)

    logits = samba_torch.logits(config, weights, ids, form)
    loss = samba_torch.loss_sum(config, weights, ids, targets, form) / targets.numel()

    last = logits[0, -1, :8].tolist()
    assert last == pytest.approx(entry["logits"]["row0_last_first8"], rel=0, abs=VALUE_TOLERANCE)
    assert loss.item() == pytest.approx(entry["loss"], rel=0, abs=VALUE_TOLERANCE)
    assert_norms(gradients(loss, weights), entry["loss_and_grads"]["grad_l2"])


@pytest.mark.parametrize("stack", STACKS)
def test_train_steps_follow_the_golden_losses(golden, stack):
    entry = golden("samba")["samba"][stack]
    config, weights = peer_of(entry)
    ids, targets = batch_of(entry)
    settings = entry["kw"]
    schedule = settings.get("lr_schedule")
    rates = schedule_from_config(schedule) if schedule else ConstantLR(settings["lr"])
    trainer = samba_torch.Trainer(config, weights, max_norm=settings.get("max_norm"))

    for step in entry["steps"]:
        rate = rates.lr_at(step["step"])
        assert rate == step["lr"]
        loss = trainer.step(ids, targets, lr=rate)
        assert loss == pytest.approx(step["loss"], rel=0, abs=STEP_TOLERANCE)


@pytest.mark.parametrize("form", FORMS)
def test_mamba3_block_gradients_are_the_golden_ones(golden, form):
    entry = golden("samba")["mamba3_block"]
    shapes = SambaConfig(vocab=2, d_model=32, layers=("mamba3",)).block_shapes("mamba3")
    draw = np.random.default_rng(11).standard_normal
    arrays = {name: (draw(shape) * 0.3).astype(np.float32) for name, shape in shapes}
    x, d_y = (draw((2, 67, 32)).astype(np.float32) for _ in range(2))
    tensors = samba_torch.weights_from_numpy({"x": x, **arrays}, torch.float64)

    y = samba_torch.mamba3_block(tensors, tensors["x"], form)

    assert y.flatten()[:8].tolist() == pytest.approx(entry["y_first8"], rel=0, abs=VALUE_TOLERANCE)
    assert_norms(gradients((y * torch.tensor(d_y)).sum(), tensors), entry["grad_l2"])


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 131])
@pytest.mark.parametrize("tied", [True, False])
def test_the_chunked_form_equals_the_recurrence(length, tied):
    config = SambaConfig(
        vocab=11,
        d_model=32,
        layers=("mamba3", "attention"),
        n_heads=4,
        n_kv_heads=2,
        intermediate=16,
        tie_embeddings=tied,
    )
    rng = np.random.default_rng(length)
    arrays = {name: rng.standard_normal(shape) * 0.3 for name, shape in config.registry()}
    weights = samba_torch.weights_from_numpy(arrays, torch.float64)
    peer = samba_torch.PeerConfig.from_dict(config.to_dict())
    ids = torch.from_numpy(rng.integers(0, 11, (1, length)))
    d_logits = torch.from_numpy(rng.standard_normal((1, length, 11)))

    chunked, serial = (samba_torch.logits(peer, weights, ids, form) for form in FORMS)

    torch.testing.assert_close(chunked, serial, rtol=FORM_TOLERANCE, atol=FORM_TOLERANCE)
    by_form = [gradients((logits * d_logits).sum(), weights) for logits in (chunked, serial)]
    for name in weights:
        scale = by_form[1][name].abs().max().item()
        torch.testing.assert_close(by_form[0][name], by_form[1][name], rtol=0, atol=FORM_TOLERANCE * (1 + scale))


@pytest.mark.parametrize("stack", STACKS)
def test_decoding_token_by_token_gives_the_logits_of_the_whole_sequence(golden, stack):
    entry = golden("samba")["samba"][stack]
    config, weights = peer_of(entry)
    ids, _ = batch_of(entry)
    decoder = Decoder(config, weights, *ids.shape)

    one_by_one = torch.stack([decoder.feed(column) for column in ids.unbind(1)], 1)
    torch.testing.assert_close(one_by_one, samba_torch.logits(config, weights, ids), rtol=0, atol=FORM_TOLERANCE)
