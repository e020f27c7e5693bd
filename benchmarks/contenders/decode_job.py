"""What both decode contenders do: read prompts, then continue each with the likeliest token."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

PROMPT_TOKENS = 64


class Greedy:
    """Decodes greedily, one token of every row a step.

    Args:
        job: `rows` and `config`, whose vocabulary the prompts are drawn from.
        feed: Appends int32 tokens [rows, tokens] and returns the logits [rows, vocab] of what comes next.
    """

    def __init__(self, job: dict[str, Any], feed: Callable[[np.ndarray], np.ndarray]) -> None:
        self._feed = feed
        shape = (job["rows"], PROMPT_TOKENS)
        prompt = np.random.default_rng(0).integers(0, job["config"]["vocab"], shape, dtype=np.int32)
        self._next = feed(prompt).argmax(-1).astype(np.int32)

    def step(self) -> float:
        """Feeds the last token of every row and chooses the next; returns a checksum of those."""
        self._next = self._feed(self._next[:, None]).argmax(-1).astype(np.int32)
        return float(zlib.crc32(self._next.tobytes()))
