"""What the comparisons of training steps share: the job of a contender, and the check before any figure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.outcome import DisagreementError
from benchmarks.rounds import require_agreement
from trainc.frontends.generator import Generator
from trainc.frontends.samba.config_file import SambaRunConfig
from trainc.frontends.samba.init import initial_weights

CHECKED_STEPS = 5
# Two float32 implementations of a model have been seen 3.5e-6 apart over five steps; AdamW's first steps amplify
# rounding (they divide by the gradient's own size), so other processors get a margin of about seven.
LOSS_TOLERANCE = 2.5e-5

# The C library's allocator, by what its settings add to a contender's name: the usual ones, and to keep freed memory.
ALLOCATORS: dict[str, dict[str, str]] = {
    "": {},
    ", kept memory": {
        "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
        "MALLOC_TRIM_THRESHOLD_": str((1 << 31) - 1),
        "MALLOC_TOP_PAD_": str(256 << 20),
    },
}


def write_job(config: SambaRunConfig, folder: Path, threads: int) -> dict[str, Any]:
    """Writes what all contenders start from; returns the job each one is sent."""
    weights, windows = folder / "weights.npz", folder / "windows.npy"
    np.savez(weights, **initial_weights(config.model, Generator(0)))
    shape = (config.batch.rows, config.batch.length + 1)
    np.save(windows, np.random.default_rng(0).integers(0, config.model.vocab, shape, dtype=np.int32))
    return {
        "config": config.model.to_dict(),
        "optimizer": config.optimizer.to_dict(),
        "weights": str(weights),
        "windows": str(windows),
        "artifact": str(folder / "model.trainc"),
        "threads": threads,
    }


def require_same_training(losses: Mapping[str, list[float]], subject: str) -> None:
    """Refuses losses of the first steps that differ between contenders or do not fall.

    Raises:
        DisagreementError: Naming the contender and the losses.
    """
    require_agreement(losses, subject, LOSS_TOLERANCE)
    if not losses[subject][-1] < losses[subject][0]:
        raise DisagreementError(f"the loss should fall on a batch that is repeated, got {losses[subject]}")
