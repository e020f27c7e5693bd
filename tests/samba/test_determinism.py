"""The same bits from any number of threads and any process; how a batch is split changes roundings and nothing else."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.samba import tiny
from tests.samba.harness import build, relative_errors, run_config
from trainc.core.philox import keep_mask
from trainc.frontends.samba.tracing.entries import COMMON, TRAIN
from trainc.runtime.driver import RandomState
from trainc.runtime.state import TrainState
from trainc.runtime.step import TrainStep

ROOT = Path(__file__).resolve().parents[2]
STEPS = 5
SPLITS = (1, 2, 4)
WIDTH, RATE = tiny.MODEL["d_model"], tiny.MODEL["dropout"]

# Splitting moves the borders of float32 sums over 32 tokens; measured 1e-7 to 3e-7 of a gradient's norm.
SPLIT_TOLERANCE = 1e-6


def steps(artifact: Path, threads: int) -> dict[str, Any]:
    """Five training steps in a process of their own: the threads of a device are fixed when it is first opened."""
    command = [sys.executable, "-m", "tests.samba.train_steps", str(artifact), str(threads), str(STEPS)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (run.returncode, run.stderr) == (0, "")
    found = json.loads(run.stdout)
    assert found.pop("threads") == threads
    assert len({loss for loss, _ in found["numbers"]}) == STEPS, "every step has its own batch"
    return found


def test_threads_and_processes_do_not_change_a_bit(tiny_artifact: Path) -> None:
    one, two, again = (steps(tiny_artifact, threads) for threads in (1, 2, 2))
    assert two == again, "two processes"
    assert one == two, "one thread and two"


@pytest.mark.slow
def test_threads_do_not_change_a_bit_of_larger_shapes(tmp_path: Path) -> None:
    """Shapes whose products and sums are cut into many pieces of work."""
    model = {"vocab": 257, "d_model": 128, "layers": ["mamba3", "attention"], "n_heads": 4, "intermediate": 192}
    run = run_config(model | {"dropout": 0.1}, 6, 131, batch={"accumulation_steps": 2})
    path = build(run, tmp_path, (TRAIN, COMMON)).path
    found = [steps(path, threads) for threads in (1, 2, 3)]
    assert found[1:] == found[:1] * 2


def trainer(splits: int, folder: Path) -> TrainStep:
    """One layer with its batch in so many microbatches, before its first step."""
    model = tiny.MODEL | {"layers": ["attention"]}
    run = run_config(model, tiny.ROWS, tiny.LENGTH, batch={"accumulation_steps": splits})
    compiled = build(run, folder, (TRAIN, COMMON))
    state = TrainState(compiled.program)
    state.start(compiled.weights, RandomState(seed=2**40 + 3, counter=9))
    return TrainStep(compiled.program, compiled.driver, state)


def batch() -> dict[str, Any]:
    """A batch in which no token occurs twice as an input, some targets ignored, unevenly over the rows."""
    rng = np.random.default_rng(3)
    ids = rng.permutation(tiny.VOCAB)[: tiny.ROWS * tiny.LENGTH].reshape(tiny.ROWS, tiny.LENGTH).astype(np.int32)
    targets = rng.integers(0, tiny.VOCAB, ids.shape).astype(np.int32)
    targets[0, :5] = targets[3, 2] = -100
    return {"ids": ids, "targets": targets}


def test_the_split_changes_roundings_only(tmp_path: Path) -> None:
    """Loss and gradients agree, and the dropout mask is that of the whole batch, to the element.

    Without ties a token's row of d_embed is the mask times what comes from above, which is never exactly zero.
    """
    found = {}
    for splits in SPLITS:
        step = trainer(splits, tmp_path / str(splits))
        loss, grads = step.gradients(batch())
        found[splits] = loss, {name: view.copy() for name, view in grads.views().items()}
    ids = batch()["ids"]
    mask = keep_mask(2**40 + 3, 9, ids.size * WIDTH, RATE).reshape(*ids.shape, WIDTH)
    assert 0.6 < mask.mean() < 0.9
    whole_loss, whole = found[1]
    for splits, (loss, gradients) in found.items():
        np.testing.assert_array_equal(gradients["embed.weight"][ids] != 0.0, mask, err_msg=f"{splits} microbatches")
        assert loss == pytest.approx(whole_loss, rel=SPLIT_TOLERANCE)
        errors = relative_errors(gradients, whole)
        assert max(errors.values()) < SPLIT_TOLERANCE, (splits, errors)
