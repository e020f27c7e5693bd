"""The models that are measured."""

from pathlib import Path

import pytest

from benchmarks.models import MODELS
from trainc.frontends.samba.config_file import load_config

ROOT = Path(__file__).resolve().parents[2]


def test_s_is_the_example():
    assert MODELS["S"].config == load_config(ROOT / "examples" / "samba_small.toml")


@pytest.mark.parametrize(
    ("name", "layers", "d_model", "vocab", "rows", "length"),
    [
        ("S", ["mamba3", "attention"] * 2, 256, 256, 8, 256),
        ("A", ["attention"] * 4, 256, 8192, 8, 256),
        ("M", ["mamba3"] * 4, 256, 256, 8, 512),
        ("W", ["mamba3", "attention"] * 2, 512, 256, 4, 1024),
        ("T", ["mamba3", "attention"], 64, 256, 4, 64),
    ],
)
def test_shapes(name, layers, d_model, vocab, rows, length):
    config = MODELS[name].config
    assert list(config.model.layers) == layers
    assert (config.model.d_model, config.model.vocab) == (d_model, vocab)
    assert (config.batch.rows, config.batch.length) == (rows, length)
    assert config.model.tie_embeddings
    assert config.optimizer.max_norm == 1.0
