"""Small stacks for tests; their kernels are compiled once and shared by all of them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.samba import tiny
from trainc.frontends.generator import Generator
from trainc.frontends.samba.config import SambaConfig
from trainc.frontends.samba.stack import SambaStack

TINY = SambaConfig(**tiny.MODEL)
"""Both layer kinds, dropout, an untied head."""

PLAIN = SambaConfig(61, 32, ("mamba3", "attention"), n_heads=2, n_kv_heads=1, intermediate=48)
"""Both layer kinds, grouped keys and values, no dropout."""

MAMBA = SambaConfig(61, 32, ("mamba3",))


class Halving:
    """A schedule without config()."""

    def lr_at(self, t: int, /) -> float:
        """The rate halves at each step."""
        return 0.01 / 2**t


def stack(config: SambaConfig = TINY, seed: int = 7, **options: Any) -> SambaStack:
    """Return a stack with weights of a seed."""
    return SambaStack(config, generator=Generator(seed), **options)


def batch(
    config: SambaConfig = TINY, rows: int = tiny.ROWS, length: int = tiny.LENGTH, seed: int = 0, ignored: float = 0.2
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return ids and targets, some of them ignored."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, config.vocab, (rows, length + 1))
    targets = ids[:, 1:].copy()
    targets[rng.random(targets.shape) < ignored] = -100
    return ids[:, :-1], targets


def snapshot(stack: SambaStack) -> dict[str, Any]:
    """Return everything that training changes, in a form that compares bit by bit."""
    return {key: _bytes(value) for key, value in stack.state_dict().items()}


def _bytes(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _bytes(item) for key, item in value.items()}
    return value.tobytes() if isinstance(value, np.ndarray) else value
