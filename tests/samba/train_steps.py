"""Training steps in a process of its own: python -m tests.samba.train_steps ARTIFACT THREADS STEPS.

Prints one JSON object: the threads the device has, the bits of every loss and norm, and SHA-256 of weights and moments.
"""

import hashlib
import json
import sys

import numpy as np

from trainc.frontends.samba.driver import SambaDriver
from trainc.runtime.artifact import Artifact
from trainc.runtime.device import open_device
from trainc.runtime.program import Program
from trainc.runtime.state import TrainState
from trainc.runtime.step import TrainStep


def main(path: str, threads: int, steps: int) -> None:
    artifact = Artifact.open(path)
    device = open_device("cpu", threads=threads)
    program, driver = Program(artifact, device), SambaDriver(artifact.manifest)
    state = TrainState(program)
    state.start(*driver.initial_parameters(11))
    trainer, rng = TrainStep(program, driver, state), np.random.default_rng(5)
    numbers = []
    for _ in range(steps):
        windows = rng.integers(0, driver.vocab, (driver.rows, driver.length + 1)).astype(np.uint8)
        result = trainer.run(driver.inputs(windows))
        numbers.append([result.loss.hex(), result.grad_norm.hex()])
    digests = [hashlib.sha256(buffer.flat.tobytes()).hexdigest() for buffer in (state.params, state.m, state.v)]
    print(json.dumps({"threads": device.threads, "numbers": numbers, "digests": digests}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
