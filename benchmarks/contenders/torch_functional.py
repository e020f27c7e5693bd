"""Contender: one function of eager PyTorch with its gradients by autograd."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from benchmarks.contenders import functional_job, protocol

EPS = 1e-5


class TorchContender:
    """Calls one function.

    Args:
        job: What `functional_job.arrays` takes, and `threads`.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        torch.set_num_threads(job["threads"])
        self._function = job["function"]
        self._tensors = [torch.from_numpy(array) for array in functional_job.arrays(job)]
        self.facts = {"version": f"torch {torch.__version__}", "threads": torch.get_num_threads()}
        if self._function == "lm_head_dense":
            self._call(functional_job.few_rows(self._tensors))
            self._tensors = [tensor.detach() for tensor in self._tensors]
            self.facts["held_bytes"] = protocol.held_bytes()

    def step(self) -> float:
        """Computes the function and its gradients."""
        return self._call(self._tensors)

    def _call(self, tensors: list[torch.Tensor]) -> float:
        *inputs, last = tensors
        for tensor in inputs:
            tensor.requires_grad_(True)
            tensor.grad = None
        if self._function in ("cross_entropy", "lm_head_dense"):
            logits = inputs[0] if self._function == "cross_entropy" else functional.linear(*inputs)
            loss = functional.cross_entropy(logits, last)
            loss.backward()
            return loss.item()
        if self._function == "rms_norm":
            out = functional.rms_norm(inputs[0], inputs[1].shape, inputs[1], EPS)
        else:
            out = functional.linear(*inputs)
        out.backward(last)
        return functional_job.sample_mean(inputs[0].grad.numpy())


if __name__ == "__main__":
    protocol.serve(TorchContender)
