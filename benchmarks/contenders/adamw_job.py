"""What both AdamW contenders step: parameters and a gradient by a fixed recipe."""

from __future__ import annotations

from typing import Any

import numpy as np

LR = 1e-3
WEIGHT_DECAY = 0.01


def arrays(job: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the parameters and the gradient of a job, float32.

    Args:
        job: `shape`, and `apart`: whether the two start at different distances from a boundary of 64 bytes.
    """
    rng = np.random.default_rng(0)
    param, grad = (_placed(rng.standard_normal(job["shape"], dtype=np.float32), past) for past in (16, 32))
    if not job["apart"]:
        grad = _placed(grad, 16)
    return param, grad


def _placed(values: np.ndarray, past_bytes: int) -> np.ndarray:
    raw = np.empty(values.nbytes + 128, np.uint8)
    start = -raw.ctypes.data % 64 + past_bytes
    placed = raw[start : start + values.nbytes].view(np.float32).reshape(values.shape)
    placed[...] = values
    return placed


def mean_square(sample: np.ndarray) -> float:
    """What a contender answers: the mean square of its first parameters, in float64."""
    return float(np.mean(np.square(sample.reshape(-1)[:4096].astype(np.float64))))
