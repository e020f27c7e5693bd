"""Prints a digest of every function's results, as JSON: `digests.py THREADS MODE`.

The inputs are large enough that every function has work for several threads.
"""

import hashlib
import json
import sys
from typing import Any

import numpy as np

from trainc.frontends import draws
from trainc.frontends.functional.cross_entropy import cross_entropy
from trainc.frontends.functional.embedding import embedding_backward
from trainc.frontends.functional.linear import linear_backward, linear_forward
from trainc.frontends.functional.lm_head import chunked_lm_head_loss
from trainc.frontends.functional.mlp import mlp_inference_sessions
from trainc.frontends.functional.rms_norm import rms_norm_backward, rms_norm_forward
from trainc.runtime.device import open_device

ROWS, WIDTH, OUTPUTS, CLASSES = 611, 72, 200, 257


def results(mode: str | None) -> dict[str, Any]:
    """Every function on the same inputs."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    x, dy, weight, dc = normal(ROWS, WIDTH), normal(ROWS, WIDTH), normal(OUTPUTS, WIDTH), normal(ROWS, OUTPUTS)
    ids, scale = rng.integers(0, CLASSES, ROWS), normal(WIDTH)
    head, logits = normal(CLASSES, WIDTH) * np.float32(0.1), normal(ROWS, CLASSES)
    return {
        "cross_entropy": cross_entropy(logits, ids, return_grad=True, label_smoothing=0.1, numeric_mode=mode),
        "embedding_backward": embedding_backward(dy, ids, CLASSES, mode),
        "rms_norm_forward": rms_norm_forward(x, scale, 1e-5, mode),
        "rms_norm_backward": rms_norm_backward(dy, x, scale, 1e-5, mode),
        "linear_forward": linear_forward(x, weight, mode),
        "linear_backward": linear_backward(dc, x, weight, mode),
        "chunked_lm_head_loss": chunked_lm_head_loss(x, head, ids, True, mode),
        "mlp": mlp_inference_sessions([x], weight, normal(OUTPUTS), normal(3, OUTPUTS), normal(3), mode),
    }


def draw_results() -> dict[str, Any]:
    """Compiled draws; they have no mode."""
    x = draws.uniform(3, 5, draws.COMPILED_ELEMENTS, -1.0, 2.0)
    return {"uniform": x, "dropout": draws.dropout(x, seed=3, stream=6, p=0.3, offset=7)}


def digest(value: Any) -> str:
    """SHA-256 of a result's bits."""
    parts = value if isinstance(value, tuple) else (value,)
    return hashlib.sha256(b"".join(np.asarray(part).tobytes() for part in parts)).hexdigest()


if __name__ == "__main__":
    open_device(threads=int(sys.argv[1]))
    found = {**results(sys.argv[2]), **draw_results()}
    sys.stdout.write(json.dumps({name: digest(value) for name, value in found.items()}))
