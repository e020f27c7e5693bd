"""Contender: one function of trainc with its gradients, NumPy arrays in and out."""

from __future__ import annotations

from typing import Any

import numpy as np

import trainc
from benchmarks.contenders import functional_job, protocol
from trainc.frontends.functional.cross_entropy import cross_entropy
from trainc.frontends.functional.linear import linear_backward, linear_forward
from trainc.frontends.functional.lm_head import chunked_lm_head_loss
from trainc.frontends.functional.rms_norm import rms_norm_backward, rms_norm_forward
from trainc.runtime.device import open_device

EPS = 1e-5


class TraincContender:
    """Calls one function.

    Args:
        job: What `functional_job.arrays` takes, and `threads`.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        device = open_device("cpu", threads=job["threads"])
        self._function, self._arrays = job["function"], functional_job.arrays(job)
        self.facts = {"version": f"trainc {trainc.__version__}", "threads": device.threads}
        if self._function.startswith("lm_head"):
            self._call(functional_job.few_rows(self._arrays))
            self.facts["held_bytes"] = protocol.held_bytes()

    def step(self) -> float:
        """Computes the function and its gradients."""
        return self._call(self._arrays)

    def _call(self, arrays: list[np.ndarray]) -> float:
        match self._function:
            case "cross_entropy":
                return cross_entropy(*arrays, return_grad=True)[0]
            case "lm_head":
                return chunked_lm_head_loss(*arrays, return_grad=True)[0]
            case "lm_head_dense":
                hidden, weight, targets = arrays
                loss, d_logits = cross_entropy(linear_forward(hidden, weight), targets, return_grad=True)
                linear_backward(d_logits, hidden, weight)
                return loss
            case "rms_norm":
                x, weight, dy = arrays
                rms_norm_forward(x, weight, EPS)
                return functional_job.sample_mean(rms_norm_backward(dy, x, weight, EPS)[0])
        a, weight, dc = arrays
        linear_forward(a, weight)
        return functional_job.sample_mean(linear_backward(dc, a, weight)[0])


if __name__ == "__main__":
    protocol.serve(TraincContender)
