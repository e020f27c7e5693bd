"""The smallest model with everything in it: both layer kinds, dropout, an untied head, accumulation and a schedule."""

from collections.abc import Mapping
from typing import Any

from tests.samba.harness import run_config
from trainc.frontends.samba.config_file import SambaRunConfig

VOCAB = 61
ROWS = 4
LENGTH = 8
MODEL: dict[str, Any] = {
    "vocab": VOCAB,
    "d_model": 32,
    "layers": ["mamba3", "attention"],
    "n_heads": 2,
    "intermediate": 48,
    "dropout": 0.25,
    "tie_embeddings": False,
}
OPTIMIZER = {"lr": 1e-2, "max_norm": 1.0}
SCHEDULE = {"kind": "cosine", "peak_lr": 1e-2, "warmup_steps": 4, "total_steps": 40}


def config(accumulation_steps: int = 2, **tables: Mapping[str, Any]) -> SambaRunConfig:
    """Return the model's run configuration; keywords replace whole tables but [model] and [batch]."""
    chosen = {"optimizer": OPTIMIZER, "schedule": SCHEDULE} | tables
    return run_config(MODEL, ROWS, LENGTH, batch={"accumulation_steps": accumulation_steps}, **chosen)
