"""AdamW in float64, for trainers whose optimizer has the default settings but for its rate."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = dict[str, npt.NDArray[Any]]


BETA1, BETA2, EPS, DECAY = (float(np.float32(value)) for value in (0.9, 0.999, 1e-8, 0.01))
"""Settings are float32 numbers: 1 - BETA2 is a hundred thousandth off 0.001."""


class AdamWReference:
    """Parameters that take AdamW steps (spec section 8)."""

    def __init__(self, weights: Mapping[str, npt.NDArray[Any]], lr: float) -> None:
        self.weights: Arrays = {name: w.astype(np.float64) for name, w in weights.items()}
        self.m: Arrays = {name: np.zeros(w.shape) for name, w in weights.items()}
        self.v: Arrays = {name: np.zeros(w.shape) for name, w in weights.items()}
        self.lr, self.t = lr, 0

    def step(self, gradients: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take one step."""
        self.t += 1
        for name, g in gradients.items():
            self.m[name] = BETA1 * self.m[name] + (1 - BETA1) * g
            self.v[name] = BETA2 * self.v[name] + (1 - BETA2) * g**2
            m, v = self.m[name] / (1 - BETA1**self.t), self.v[name] / (1 - BETA2**self.t)
            self.weights[name] = self.weights[name] * (1 - self.lr * DECAY) - self.lr * m / (np.sqrt(v) + EPS)
