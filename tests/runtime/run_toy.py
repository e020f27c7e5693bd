"""A run of the toy artifact as a process of its own: python -m tests.runtime.run_toy ARTIFACT DATA OUT JSON-OPTIONS."""

import json
import os
import signal
import sys
from pathlib import Path

from tests.runtime import toy
from trainc.core.errors import TraincError
from trainc.runtime.artifact import Artifact
from trainc.runtime.data import Corpus
from trainc.runtime.device import open_device
from trainc.runtime.loop import RunOptions, Silent, train
from trainc.runtime.program import Program
from trainc.runtime.step import TrainStep


class At(Silent):
    """Does something once a step is done."""

    def __init__(self, number, action) -> None:
        self._number, self._action = number, action

    def step(self, step, metrics) -> None:
        if step == self._number:
            self._action()


def fail() -> None:
    raise RuntimeError("the callback failed")


def main() -> int:
    artifact_path, data, out, options_text = sys.argv[1:]
    options = json.loads(options_text)
    name = options.pop("device", "cpu")
    threads, kill_at = options.pop("threads", 2), options.pop("kill_at", None)
    action, at = options.pop("action", None), options.pop("at", 0)
    actions = {
        "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "SIGINT": lambda: os.kill(os.getpid(), signal.SIGINT),
        "SIGTERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
        "raise": fail,
    }
    artifact = Artifact.open(artifact_path)
    device = open_device(name, threads=threads if name == "cpu" else None)
    step = TrainStep(Program(artifact, device), toy.ToyDriver(artifact.manifest))
    windows = Corpus([data], vocab=toy.VOCAB).windows(toy.LENGTH)
    if kill_at is not None:
        from tests.runtime.killing import Events

        Events(kill_at)
    try:
        train(step, windows, RunOptions(out=Path(out), **options), At(at, actions.get(action)))
    except TraincError as error:
        print(f"{type(error).__name__}: {error}")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
