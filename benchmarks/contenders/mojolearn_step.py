"""Contender: the train step of mojolearn's SambaStack on the CPU, where it has one numeric mode, `identical`."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contenders import protocol


class MojolearnContender:
    """Steps the stack on one batch.

    Args:
        job: `config` and `optimizer` settings as dicts, `weights` and `windows` as files of NumPy. The number of
            threads is the package's own choice: it has no setting for it.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        load_libraries()
        import mojolearn
        from mojolearn.training import SambaConfig, SambaStack

        with np.load(job["weights"]) as arrays:
            weights = dict(arrays)
        optimizer = {**job["optimizer"], "betas": tuple(job["optimizer"]["betas"])}
        config = SambaConfig(**{**job["config"], "layers": tuple(job["config"]["layers"])})
        self._stack = SambaStack(config, weights=weights, numeric_mode="identical", **optimizer)
        windows = np.load(job["windows"])
        self._ids, self._targets = np.ascontiguousarray(windows[:, :-1]), np.ascontiguousarray(windows[:, 1:])
        self.facts = {"version": f"mojolearn {mojolearn.__version__}"}

    def step(self) -> float:
        """Takes one step and returns the loss before the update."""
        return float(self._stack.train_step(self._ids, self._targets)["loss"])


def load_libraries() -> None:
    """Loads the libraries that the package brings along, which it does not find itself unless they are on a path."""
    spec = importlib.util.find_spec("mojolearn")
    for folder in spec.submodule_search_locations if spec else ():
        waiting = sorted((Path(folder) / ".libs").glob("*.so*"))
        for _ in range(len(waiting)):  # one may need another one first
            waiting = [file for file in waiting if not _loads(file)]


def _loads(library: Path) -> bool:
    try:
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    protocol.serve(MojolearnContender)
