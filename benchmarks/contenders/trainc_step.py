"""Contender: the train step of a compiled artifact, and the compilation it needs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

import trainc
from benchmarks.contenders import protocol


class TraincContender:
    """Steps an artifact on one batch.

    Args:
        job: `artifact` and the NumPy files `weights` and `windows` as paths, `threads`.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        from trainc.frontends.drivers import driver_for
        from trainc.runtime.artifact import Artifact
        from trainc.runtime.device import open_device
        from trainc.runtime.driver import RandomState
        from trainc.runtime.program import Program
        from trainc.runtime.step import TrainStep

        device = open_device("cpu", threads=job["threads"])
        artifact = Artifact.open(job["artifact"])
        self._step = TrainStep(Program(artifact, device), driver_for(artifact.manifest))
        with np.load(job["weights"]) as arrays:
            self._step.state.start(dict(arrays), RandomState())
        windows = np.load(job["windows"])
        self._inputs = {"ids": windows[:, :-1], "targets": windows[:, 1:]}
        self.facts = {"version": f"trainc {trainc.__version__}", "threads": device.threads}

    def step(self) -> float:
        """Takes one step and returns the loss before the update."""
        return self._step.run(self._inputs).loss


def compile_artifact(config: Any, artifact: Path, cache: Path) -> dict[str, float]:
    """Compiles a model with an empty compile cache.

    Args:
        config: A `SambaRunConfig`.
        artifact: Where the artifact goes.
        cache: A folder for the compile cache that does not exist yet.

    Returns:
        `step_s`, the time from the configuration to the modules that hold the entries gradients and update, and
        `artifact_s`, the time to all modules in an artifact on disk.
    """
    from trainc.compiler.build import compile_modules
    from trainc.compiler.cache import FOLDER_VARIABLE
    from trainc.compiler.targets import find_target
    from trainc.frontends.samba.tracing import build, entries

    os.environ[FOLDER_VARIABLE] = str(cache)
    start_s = time.perf_counter()
    programs = {entries.TRAIN: entries.trace_train(config), entries.COMMON: entries.trace_common(config)}
    compile_modules(programs, entries.state_tables(config), [find_target("cpu")])
    step_s = time.perf_counter() - start_s
    build.compile_samba(config, artifact)  # takes the two modules from the cache
    return {"step_s": step_s, "artifact_s": time.perf_counter() - start_s}


if __name__ == "__main__":
    protocol.serve(TraincContender)
