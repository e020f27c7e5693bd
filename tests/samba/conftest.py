"""The tiny model as an artifact, something to train it on, and the command line to do it with."""

from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Cli
from tests.samba import tiny
from tests.samba.harness import build
from trainc.frontends.samba.tracing.entries import COMMON, TRAIN


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Runs `python -m trainc.cli` in this test's folder."""
    return Cli(tmp_path)


@pytest.fixture(scope="session")
def tiny_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What training needs of the tiny model, two microbatches a step."""
    return build(tiny.config(), tmp_path_factory.mktemp("tiny"), (TRAIN, COMMON)).path


@pytest.fixture(scope="session")
def tiny_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bytes of the tiny vocabulary, 24 windows: six steps are one epoch."""
    path = tmp_path_factory.mktemp("data") / "data.bin"
    letters = np.random.default_rng(0).integers(0, tiny.VOCAB, 24 * tiny.LENGTH + 1)
    path.write_bytes(letters.astype(np.uint8).tobytes())
    return path
