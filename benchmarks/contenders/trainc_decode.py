"""Contender: greedy decoding with a compiled artifact."""

from __future__ import annotations

from typing import Any

import numpy as np

import trainc
from benchmarks.contenders import protocol
from benchmarks.contenders.decode_job import Greedy
from trainc.runtime.artifact import Artifact
from trainc.runtime.decode import Decoder
from trainc.runtime.device import open_device
from trainc.runtime.program import Program


class TraincContender(Greedy):
    """Decodes from given weights.

    Args:
        job: `artifact` and the NumPy file `weights` as paths, `threads`, and what `Greedy` takes.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        device = open_device("cpu", threads=job["threads"])
        program = Program(Artifact.open(job["artifact"]), device)
        params = program.new_state("params", "params")
        with np.load(job["weights"]) as arrays:
            params.write(dict(arrays))
        self.facts = {"version": f"trainc {trainc.__version__}", "threads": device.threads}
        super().__init__(job, Decoder(program, params).feed)


if __name__ == "__main__":
    protocol.serve(TraincContender)
