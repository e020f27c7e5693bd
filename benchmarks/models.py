"""The models that the benchmarks measure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainc.frontends.samba.config_file import SambaRunConfig, config_from_document


@dataclass(frozen=True)
class Model:
    """A model, its batch and its optimizer.

    Attributes:
        config: What a train step is compiled from.
        turn_steps: Steps of a contender's turn, more for a model whose steps are short.
    """

    config: SambaRunConfig
    turn_steps: int = 4


def _samba(layers: str, d_model: int, rows: int, length: int, **model: Any) -> SambaRunConfig:
    return config_from_document(
        {
            "model": {"vocab": 256, "d_model": d_model, "layers": layers, **model},
            "batch": {"rows": rows, "length": length},
            "optimizer": {"max_norm": 1.0},
        }
    )


MODELS = {
    "S": Model(_samba("2*(mamba3, attention)", 256, 8, 256, n_heads=4, intermediate=512)),
    "A": Model(_samba("4*attention", 256, 8, 256, n_heads=4, intermediate=1024, vocab=8192)),
    "M": Model(_samba("4*mamba3", 256, 8, 512)),
    "W": Model(_samba("2*(mamba3, attention)", 512, 4, 1024, n_heads=8, intermediate=1024)),
    "T": Model(_samba("mamba3, attention", 64, 4, 64, n_heads=4, intermediate=128), turn_steps=60),
}

TOKENS = 4096
# The same number of tokens a step in short sequences and in one long one.
LENGTHS = {length: _samba("4*mamba3", 256, TOKENS // length, length) for length in (256, TOKENS)}
