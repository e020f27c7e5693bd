"""Compiled gradients against float64, over lengths, heads, vocabularies and dropout; and that they repeat.

`exact` is the same traced program interpreted in float64; tests/ir/ops hold every rule in it against central
differences of the naive references, and test_whole_stack does so for the model as a whole.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.samba.harness import build, exact_gradients, random_batch, relative_errors, run_config
from trainc.frontends.samba.config_file import SambaRunConfig
from trainc.frontends.samba.tracing import entries
from trainc.frontends.samba.tracing.entries import TRAIN
from trainc.runtime.losses import total_loss

# float32 has 24 bits; a gradient is a sum of thousands of products of values each wrong by a few units of 2**-24.
# Measured errors are 5e-7 to 2e-6 of the norm, up to 1e-5 for sums over all tokens of quantities that nearly cancel
# (dt_bias, norms of B and C); golden values are allowed 5e-5.
TOLERANCE = 5e-5

# The gradient of dt_bias is one number a head: a sum over all tokens of terms of both signs that nearly cancel. Its
# error is that of the terms (1e-6 of their sum of magnitudes) and reached 5.6e-5 of the sum in one of 192 cases.
CANCELLING = "dt_bias"
CANCELLING_TOLERANCE = 2e-4
LOSS_TOLERANCE = 2e-6

BOTH = {"d_model": 32, "layers": ["mamba3", "attention"], "n_heads": 2, "intermediate": 48}


def _case(length: int, rows: int = 2, **changes: Any) -> SambaRunConfig:
    return run_config({"vocab": 61, **BOTH, **changes}, rows, length)


PAIRS = {
    "L1-B1": _case(1, 1, tie_embeddings=False),
    "L2-dropout": _case(2, dropout=0.25),
    "L63-V257-untied": _case(63, 1, vocab=257, tie_embeddings=False),
    "L64-gqa": _case(64, n_heads=4, n_kv_heads=2, head_dim=8),
    "L65-mqa-dropout": _case(65, 1, n_heads=4, n_kv_heads=1, head_dim=8, dropout=0.1),
    "L131-mamba3": _case(131, layers=["mamba3", "mamba3"]),
    "L131-attention-V257": _case(131, 1, vocab=257, layers=["attention"]),
}

PRODUCT = {
    f"L{length}-B{rows}-V{vocab}-{'tied' if tied else 'untied'}-kv{kv}-p{dropout}": _case(
        length, rows, vocab=vocab, tie_embeddings=tied, n_heads=4, n_kv_heads=kv, head_dim=8, dropout=dropout
    )
    for length in (1, 2, 63, 64, 65, 131)
    for rows in (1, 3)
    for vocab in (61, 257)
    for tied in (True, False)
    for kv in (2, 4)
    for dropout in (0.0, 0.25)
}


def check(run: SambaRunConfig, folder: Path, target: str = "cpu", device: str = "cpu") -> None:
    """Hold loss and gradients of a model, compiled for a target and run on a device, against float64."""
    model = build(run, folder, (TRAIN,), target=target, device=device)
    rng = np.random.default_rng(1)
    weights = {name: (w + 0.1 * rng.standard_normal(w.shape)).astype(np.float32) for name, w in model.weights.items()}
    model.params.write(weights)
    ids, targets = random_batch(run, seed=2, ignored=0.2 if run.batch.length > 2 else 0.0)
    key = [np.array([5, 1, 3, 7, 0], np.int32)] if run.model.dropout else []
    named = {"dropout_key": key[0]} if key else {}
    loss, gradients = model.gradients(ids, targets, 13.0, **named)
    exact_loss, exact = exact_gradients(run, weights, ids, targets, 13.0, *key)
    assert loss == pytest.approx(exact_loss, rel=LOSS_TOLERANCE)
    errors = relative_errors(gradients, exact)
    bars = {name: CANCELLING_TOLERANCE if name.endswith(CANCELLING) else TOLERANCE for name in errors}
    assert all(errors[name] < bars[name] for name in errors), errors


@pytest.mark.parametrize("name", PAIRS)
def test_compiled_gradients(name: str, tmp_path: Path) -> None:
    check(PAIRS[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", PRODUCT)
def test_compiled_gradients_product(name: str, tmp_path: Path) -> None:
    check(PRODUCT[name], tmp_path)


@pytest.mark.parametrize("dropout", [0.0, 0.25])
@pytest.mark.parametrize("length", [2, 65])
def test_whole_stack_against_central_differences(length: int, dropout: float) -> None:
    """<gradient, v> equals the slope of the loss of the naive references along v, in float64."""
    from trainc.ir.interpret import interpret

    run = _case(length, n_heads=4, n_kv_heads=2, head_dim=8, dropout=dropout)
    rng = np.random.default_rng(3)
    weights = {name: 0.3 * rng.standard_normal(shape) for name, shape in run.model.registry()}
    direction = {name: rng.standard_normal(w.shape) for name, w in weights.items()}
    ids, targets = random_batch(run, seed=4)
    key = [np.array([5, 1, 3, 7, 0], np.int32)] if dropout else []
    _, gradients = exact_gradients(run, weights, ids, targets, 7.0, *key)
    slope = sum(float(np.vdot(gradients[name], direction[name])) for name in weights)
    program = entries.trace_train(run)

    def loss(step: float) -> float:
        moved = [weights[name] + step * direction[name] for name in weights]
        return total_loss(interpret(program, "gradients", [*moved, ids, targets, np.float64(7.0), *key])[0])

    h = 1e-4
    measured = (8 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))) / (12 * h)
    # Both sides are sums that may cancel: they are compared on the scale of a slope along a random direction, the norm
    # of the gradient. Constants inside decompositions are rounded to float32 (6e-8), the references' are not.
    scale = float(np.linalg.norm([np.linalg.norm(g) for g in gradients.values()]))
    assert slope == pytest.approx(measured, abs=1e-6 * scale)


def test_twenty_repeats_are_bit_equal(tmp_path: Path) -> None:
    run = _case(65, n_heads=4, n_kv_heads=2, head_dim=8)
    model = build(run, tmp_path, (TRAIN,))
    ids, targets = random_batch(run, seed=2)
    first_loss, first = model.gradients(ids, targets, 7.0)
    for _ in range(19):
        loss, gradients = model.gradients(ids, targets, 7.0)
        assert loss == first_loss
        for name in first:
            assert gradients[name].tobytes() == first[name].tobytes(), name
