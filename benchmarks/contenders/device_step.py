"""Contender: the train step of an artifact on any device, over a cycle of batches. Needs no compiler."""

from __future__ import annotations

from typing import Any

import numpy as np

import trainc
from benchmarks.contenders import protocol


class DeviceContender:
    """Steps an artifact from its own initial weights.

    Args:
        job: `artifact`, the name of the `device`, the `seed` of the weights, and `windows`, a file of NumPy with
            uint8 [batches, rows, length + 1].
    """

    def __init__(self, job: dict[str, Any]) -> None:
        from trainc.frontends.drivers import driver_for
        from trainc.runtime.artifact import Artifact
        from trainc.runtime.device import open_device
        from trainc.runtime.program import Program
        from trainc.runtime.step import TrainStep

        artifact = Artifact.open(job["artifact"])
        driver = driver_for(artifact.manifest)
        program = Program(artifact, open_device(job["device"]))
        self._step = TrainStep(program, driver)
        self._step.state.start(*driver.initial_parameters(job["seed"]))
        self._batches = [driver.inputs(windows) for windows in np.load(job["windows"])]
        self.facts = {"version": f"trainc {trainc.__version__}", "device": program.device.name}

    def step(self) -> float:
        """Takes one step, waits for its end and returns the loss before the update."""
        return self._step.run(self._batches[self._step.state.step % len(self._batches)]).loss


if __name__ == "__main__":
    protocol.serve(DeviceContender)
