"""A run that was stopped or killed and resumed leaves the same bytes as one that never was.

The model has dropout and two microbatches a step, the data ends after six steps and a schedule runs: the place in each
must come back with the weights and moments. Everything goes through the command line, in processes of their own.
"""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from trainc.runtime.metrics import read_metrics

EVERY = 3


def contents(run: Path) -> dict[str, object]:
    """Everything in a run's folder, metrics without what depends on the clock and the machine."""
    rows = [
        {key: value for key, value in row.items() if not key.startswith(("perf/", "mem/"))}
        for row in read_metrics(run / "metrics.jsonl")
    ]
    files = {path.name: path.read_bytes() for path in (run / "checkpoints").iterdir()}
    return {"files": sorted(path.name for path in run.iterdir()), "metrics": rows, **files}


class Runs:
    """Starts, interrupts and resumes `trainc run` on one artifact and one file of data."""

    def __init__(self, cli: Cli, artifact: Path, data: Path) -> None:
        self.cli, self._fixed = cli, ("run", artifact, "--data", data, "--checkpoint-every", EVERY)

    def whole(self, steps: int, *options: object) -> dict[str, object]:
        """What a run of so many steps leaves when nothing happens to it."""
        self.cli.ok(*self._fixed, "--steps", steps, "--out", "whole", *options)
        return contents(self.cli.folder / "whole")

    def resumed(self, steps: int, *options: object) -> dict[str, object]:
        """What the interrupted run leaves when it goes on to so many steps."""
        self.cli.ok(*self._fixed, "--steps", steps, "--out", "run", "--resume", *options)
        return contents(self.cli.folder / "run")

    def signalled(self, number: signal.Signals, after: int) -> tuple[int, str]:
        """Start an endless run and signal it once it has written the metrics of `after` steps; status and stderr."""
        command = self.cli.command(*self._fixed, "--steps", 1_000_000, "--out", "run")
        process = subprocess.Popen(
            command, cwd=self.cli.folder, env=self.cli.full_environment, stderr=subprocess.PIPE, text=True
        )
        metrics = self.cli.folder / "run/metrics.jsonl"
        deadline_s = time.monotonic() + 120
        while not (metrics.exists() and metrics.read_bytes().count(b"\n") >= after):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline_s
            time.sleep(0.005)
        process.send_signal(number)
        _, shown = process.communicate(timeout=120)
        return process.returncode, shown

    def killed(self, event: str, number: int, steps: int, *options: object) -> None:
        """Start a run that is killed inside a save."""
        arguments = map(str, (event, number, *self._fixed, "--steps", steps, "--out", "run", *options))
        command = [sys.executable, "-m", "tests.samba.killed_cli", *arguments]
        ended = subprocess.run(
            command, cwd=self.cli.folder, env=self.cli.full_environment, capture_output=True, timeout=120
        )
        assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()

    def latest(self) -> int:
        """The step that the interrupted run's pointer names; 0 if there is no pointer yet."""
        pointer = self.cli.folder / "run/checkpoints/latest"
        name = pointer.read_text().strip() if pointer.exists() else "step-0"
        return int(name.removeprefix("step-").removesuffix(".safetensors"))


@pytest.fixture
def runs(cli: Cli, tiny_artifact: Path, tiny_data: Path) -> Runs:
    return Runs(cli, tiny_artifact, tiny_data)


def test_kill_9_between_saves(runs: Runs) -> None:
    status, _ = runs.signalled(signal.SIGKILL, after=2 * EVERY + 2)
    assert status == -signal.SIGKILL
    saved = runs.latest()
    assert saved >= EVERY
    steps = saved + EVERY + 1
    assert runs.resumed(steps) == runs.whole(steps)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_resuming_goes_on(runs: Runs, number: signal.Signals) -> None:
    status, shown = runs.signalled(number, after=EVERY + 1)
    assert status == 130
    step = runs.latest()
    (line,) = [line for line in shown.splitlines() if line.startswith("trainc: error: ")]
    assert number.name in line
    assert f"after step {step};" in line
    assert read_metrics(runs.cli.folder / "run/metrics.jsonl")[-1]["step"] == step
    steps = step + 2
    # The signal's own checkpoint is one that the whole run does not have, and may have pushed out another.
    assert runs.resumed(steps, "--keep", 1) == runs.whole(steps, "--keep", 1)


# The event, its number, and the step that `latest` then names. A save writes its header and each of 3 * 21 tensors,
# then the pointer; the first file made at all is metrics.jsonl.
KILLS = {
    "first save, first tensors": ("write", 5, 0),
    "second save, half way": ("write", 100, 3),
    "between checkpoint and pointer": ("after replace", 4, 3),
    "before the oldest goes": ("before unlink", 1, 6),
}


@pytest.fixture(scope="module")
def unbroken(tiny_artifact: Path, tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Ten steps at once; saves after 3, 6 and 9 and at the end, one checkpoint is kept."""
    return Runs(Cli(tmp_path_factory.mktemp("unbroken")), tiny_artifact, tiny_data).whole(10, "--keep", 1)


@pytest.mark.parametrize("kill", KILLS)
def test_kill_9_inside_a_save(runs: Runs, unbroken: dict[str, object], kill: str) -> None:
    event, number, saved = KILLS[kill]
    runs.killed(event, number, 10, "--keep", 1)
    assert runs.latest() == saved
    assert runs.resumed(10, "--keep", 1) == unbroken
