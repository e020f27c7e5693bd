"""Contender: greedy decoding in eager PyTorch (peers/samba_torch_decode.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from benchmarks.contenders import protocol
from benchmarks.contenders.decode_job import Greedy
from benchmarks.peers import samba_torch
from benchmarks.peers.samba_torch_decode import Decoder


class TorchContender(Greedy):
    """Decodes from given weights.

    Args:
        job: The NumPy file `weights` as a path, `max_tokens`, `threads`, and what `Greedy` takes.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        torch.set_num_threads(job["threads"])
        with np.load(job["weights"]) as arrays:
            weights = {name: torch.from_numpy(array) for name, array in arrays.items()}
        config = samba_torch.PeerConfig.from_dict(job["config"])
        decoder = Decoder(config, weights, job["rows"], job["max_tokens"])

        def feed(ids: np.ndarray) -> np.ndarray:
            for column in torch.from_numpy(ids.astype(np.int64)).unbind(1):
                logits = decoder.feed(column)
            return logits.numpy()

        self.facts = {"version": f"torch {torch.__version__}", "threads": torch.get_num_threads()}
        super().__init__(job, feed)


if __name__ == "__main__":
    protocol.serve(TorchContender)
