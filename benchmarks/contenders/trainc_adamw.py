"""Contender: trainc's AdamW over one NumPy array."""

from __future__ import annotations

from typing import Any

import trainc
from benchmarks.contenders import adamw_job, protocol
from trainc.frontends.optimizers.adam import AdamW
from trainc.runtime.device import open_device


class TraincContender:
    """Steps one array.

    Args:
        job: What `adamw_job.arrays` takes, and `threads`.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        device = open_device("cpu", threads=job["threads"])
        self._param, self._grad = adamw_job.arrays(job)
        self._optimizer = AdamW([self._param], lr=adamw_job.LR, weight_decay=adamw_job.WEIGHT_DECAY)
        self.facts = {"version": f"trainc {trainc.__version__}", "threads": device.threads}

    def step(self) -> float:
        """Takes one step."""
        self._optimizer.step([self._grad])
        return adamw_job.mean_square(self._param)


if __name__ == "__main__":
    protocol.serve(TraincContender)
