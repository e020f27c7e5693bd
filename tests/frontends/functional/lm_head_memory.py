"""Prints how many bytes of memory one loss with gradients takes beside its inputs and its gradients."""

import sys
from pathlib import Path

import numpy as np

from trainc.frontends.functional.lm_head import chunked_lm_head_loss

ROWS, WIDTH, VOCAB = 2048, 256, 50257
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def resident_bytes(field: str) -> int:
    return int(STATUS.read_text().partition(f"{field}:")[2].split()[0]) * 1024


def main() -> None:
    rng = np.random.default_rng(0)
    hidden, weight = (rng.standard_normal((n, WIDTH), dtype=np.float32) for n in (ROWS, VOCAB))
    weight *= 0.06
    targets = rng.integers(0, VOCAB, ROWS)
    chunked_lm_head_loss(hidden[:8], weight[:1100], targets[:8] % 1100, return_grad=True)
    RESET.write_text("5")  # the peak starts anew
    before = resident_bytes("VmRSS")
    loss, d_hidden, d_weight = chunked_lm_head_loss(hidden, weight, targets, return_grad=True)
    assert 11.2 < loss < 11.4, "log(50257) = 10.8, and half of the logits' variance"
    sys.stdout.write(str(resident_bytes("VmHWM") - before - d_hidden.nbytes - d_weight.nbytes))


if __name__ == "__main__":
    main()
