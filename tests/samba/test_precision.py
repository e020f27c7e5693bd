"""Training in bf16 follows training in float32: the losses of 200 steps, side by side."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tests.bf16 import needs_bf16
from tests.samba.harness import load, run_config
from trainc.frontends.samba.tracing.build import samba_source
from trainc.frontends.samba.tracing.entries import COMMON, TRAIN
from trainc.frontends.tracing.artifact import compile_artifact
from trainc.runtime.driver import RandomState
from trainc.runtime.state import TrainState
from trainc.runtime.step import TrainStep

STEPS = 200
VOCAB, ROWS, LENGTH = 64, 4, 64
MODEL = {"vocab": VOCAB, "d_model": 64, "layers": ["mamba3", "attention"], "n_heads": 2, "intermediate": 128}
RUN = run_config(MODEL, ROWS, LENGTH, optimizer={"lr": 3e-3, "max_norm": 1.0})


def text() -> npt.NDArray[np.uint8]:
    """Draw windows in which a token is followed by one of four, the first of them most often."""
    rng = np.random.default_rng(0)
    followers = rng.integers(0, VOCAB, (VOCAB, 4))
    choices = rng.choice(4, (STEPS, ROWS, LENGTH), p=[0.55, 0.25, 0.15, 0.05])
    windows = np.empty((STEPS, ROWS, LENGTH + 1), np.uint8)
    windows[..., 0] = rng.integers(0, VOCAB, (STEPS, ROWS))
    for t in range(LENGTH):
        windows[..., t + 1] = followers[windows[..., t], choices[..., t]]
    return windows


def losses(precision: str, folder: Path) -> npt.NDArray[np.float64]:
    """Train on the text and return the loss of every step."""
    path = folder / f"{precision}.trainc"
    manifest = compile_artifact(samba_source(RUN, (TRAIN, COMMON), "fast", precision), path)
    assert manifest.precision == precision
    compiled = load(RUN, path)
    state = TrainState(compiled.program)
    state.start(compiled.weights, RandomState(seed=1, counter=0))
    step = TrainStep(compiled.program, compiled.driver, state)
    return np.array([step.run(compiled.driver.inputs(windows)).loss for windows in text()])


@needs_bf16
@pytest.mark.slow
def test_losses_of_200_steps_stay_within_one_percent(tmp_path: Path) -> None:
    narrow, wide = losses("bf16", tmp_path), losses("f32", tmp_path)
    assert wide[-20:].mean() < 0.5 * wide[0], "the model should have learned something"
    assert (narrow != wide).all(), "nothing was rounded"
    np.testing.assert_allclose(narrow, wide, rtol=0.01)
