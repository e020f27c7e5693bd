"""What both contenders of benchmarks/functional.py compute on."""

from __future__ import annotations

from typing import Any

import numpy as np


def arrays(job: dict[str, Any]) -> list[np.ndarray]:
    """Returns a job's operands: float32 arrays, then int64 targets where there are some.

    Args:
        job: `function` and `shape`.
    """
    rng = np.random.default_rng(0)
    shape = job["shape"]

    def normal(*dims: int) -> np.ndarray:
        return rng.standard_normal(dims, dtype=np.float32)

    match job["function"]:
        case "cross_entropy":
            return [normal(*shape), rng.integers(0, shape[1], shape[0])]
        case "rms_norm":
            return [normal(*shape), normal(shape[1]), normal(*shape)]
        case "linear":
            rows, inputs, outputs = shape
            return [normal(rows, inputs), normal(outputs, inputs), normal(rows, outputs)]
        case "lm_head" | "lm_head_dense":
            rows, width, classes = shape
            return [normal(rows, width), normal(classes, width) * np.float32(0.06), rng.integers(0, classes, rows)]
    raise ValueError(job["function"])


def few_rows(operands: list[Any]) -> list[Any]:
    """A head's operands with eight of the rows: a call on them compiles and loads all that a call on all rows needs."""
    hidden, weight, targets = operands
    return [hidden[:8], weight, targets[:8]]


def sample_mean(gradient: np.ndarray) -> float:
    """What a layer's contender answers: the mean of its first gradient elements, in float64."""
    return float(np.mean(gradient.reshape(-1)[:4096], dtype=np.float64))
