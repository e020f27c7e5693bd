"""Contender: the train step in PyTorch (peers/samba_torch.py), eager or compiled, with its fused AdamW."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from benchmarks.contenders import protocol
from benchmarks.peers import samba_torch


class TorchContender:
    """Steps the peer on one batch.

    Args:
        job: `config` and `optimizer` settings as dicts, `weights` and `windows` as files of NumPy, `threads`,
            `compiled`: whether loss and gradients run through `torch.compile`. `device`, by default the CPU, and
            `narrow`, whether the loss is computed under autocast to bfloat16, may be left out.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        torch.set_num_threads(job["threads"])
        optimizer = job["optimizer"]
        device = job.get("device", "cpu")
        with np.load(job["weights"]) as arrays:
            weights = samba_torch.weights_from_numpy(arrays, device=device)
        self._trainer = samba_torch.Trainer(
            samba_torch.PeerConfig.from_dict(job["config"]),
            weights,
            lr=optimizer["lr"],
            betas=tuple(optimizer["betas"]),
            eps=optimizer["eps"],
            weight_decay=optimizer["weight_decay"],
            max_norm=optimizer["max_norm"],
            compiled=job["compiled"],
            narrow=job.get("narrow", False),
        )
        windows = torch.from_numpy(np.load(job["windows"]).astype(np.int64)).to(device)
        self._ids, self._targets = windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
        self.facts = {"version": f"torch {torch.__version__}", "threads": torch.get_num_threads()}

    def step(self) -> float:
        """Takes one step and returns the loss before the update."""
        return self._trainer.step(self._ids, self._targets)


if __name__ == "__main__":
    protocol.serve(TorchContender)
