"""Contender: PyTorch's fused AdamW over one tensor."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.contenders import adamw_job, protocol


class TorchContender:
    """Steps one tensor.

    Args:
        job: What `adamw_job.arrays` takes, and `threads`.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        torch.set_num_threads(job["threads"])
        param, grad = adamw_job.arrays(job)
        self._param = torch.nn.Parameter(torch.from_numpy(param))
        self._param.grad = torch.from_numpy(grad)
        self._optimizer = torch.optim.AdamW(
            [self._param], lr=adamw_job.LR, weight_decay=adamw_job.WEIGHT_DECAY, fused=True
        )
        self._sample = param
        self.facts = {"version": f"torch {torch.__version__}", "threads": torch.get_num_threads()}

    def step(self) -> float:
        """Takes one step."""
        self._optimizer.step()
        return adamw_job.mean_square(self._sample)


if __name__ == "__main__":
    protocol.serve(TorchContender)
