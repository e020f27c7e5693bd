"""Contender: the train step in JAX (peers/samba_jax.py), compiled as one function."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.contenders import protocol
from benchmarks.peers import samba_jax


class JaxContender:
    """Steps the peer on one batch.

    Args:
        job: `config` and `optimizer` settings as dicts, `weights` and `windows` as files of NumPy. The number of
            threads comes from the environment: JAX has no setting for it.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        self._step = samba_jax.make_step(job["config"], job["optimizer"])
        with np.load(job["weights"]) as arrays:
            self._state = samba_jax.initial_state(arrays)
        windows = np.load(job["windows"])
        self._ids, self._targets = jnp.asarray(windows[:, :-1]), jnp.asarray(windows[:, 1:])
        self.facts = {"version": f"jax {jax.__version__}"}

    def step(self) -> float:
        """Takes one step and returns the loss before the update."""
        self._state, loss = self._step(self._state, self._ids, self._targets)
        jax.block_until_ready(self._state)
        return float(loss)


if __name__ == "__main__":
    protocol.serve(JaxContender)
