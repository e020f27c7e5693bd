"""The loop: what a run leaves behind, resuming to the byte, and stopping in order."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from trainc.core.errors import CheckpointError, DataError, Interrupted, NumericsError, UsageError
from trainc.runtime.checkpoint import read_checkpoint
from trainc.runtime.loop import RunOptions, Silent, train
from trainc.runtime.metrics import read_metrics

ROOT = Path(__file__).resolve().parents[2]


def run_toy(artifact, data, out, **options):
    command = [sys.executable, "-m", "tests.runtime.run_toy", artifact, data, out, json.dumps(options)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


def contents(out: Path) -> dict:
    """What a run produced, without times and memory."""
    metrics = [
        {key: value for key, value in row.items() if not key.startswith(("perf/", "mem/"))}
        for row in read_metrics(out / "metrics.jsonl")
    ]
    last = sorted((out / "checkpoints").glob("step-*"))[-1]
    return {"metrics": metrics, "name": last.name, "bytes": last.read_bytes()}


@pytest.fixture(scope="session")
def unbroken(artifact_path, tmp_path_factory):
    """Ten steps at once, by a process with two threads."""
    from tests.runtime import toy

    home = tmp_path_factory.mktemp("unbroken")
    (home / "data.bin").write_bytes(toy.text_bytes(1000))
    run = run_toy(artifact_path, home / "data.bin", home / "run", steps=10, checkpoint_every=2)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    return contents(home / "run")


def test_a_run_leaves_metrics_and_checkpoints(new_step, windows, tmp_path):
    out = tmp_path / "run"
    step = new_step()
    report = train(step, windows, RunOptions(out=out, steps=7, checkpoint_every=2, keep=2))
    assert (report.first_step, report.step, report.last.step) == (0, 7, 7)
    names = sorted(path.name for path in (out / "checkpoints").iterdir())
    assert names == ["latest", "step-00000006.safetensors", "step-00000007.safetensors"]
    assert (out / "checkpoints/latest").read_text() == "step-00000007.safetensors\n"
    rows = read_metrics(out / "metrics.jsonl")
    assert [row["step"] for row in rows] == list(range(1, 8))
    assert set(rows[0]) == {
        "step",
        "train/loss",
        "train/grad_norm",
        "train/lr",
        "perf/tokens_per_s",
        "mem/peak_bytes",
    }
    assert rows[6]["train/loss"] == report.last.loss
    checkpoint = read_checkpoint(report.checkpoint)
    np.testing.assert_array_equal(checkpoint.parameters["W"], step.state.params.views()["W"])
    np.testing.assert_array_equal(checkpoint.v["b"], step.state.v.views()["b"])
    assert checkpoint.state["step"] == 7
    assert checkpoint.state["generator"] == {"seed": 0, "counter": 9}
    assert (checkpoint.state["data"]["epoch"], checkpoint.state["data"]["position"]) == (0, 28)


def test_it_learns(new_step, windows, tmp_path):
    train(new_step(), windows, RunOptions(out=tmp_path / "run", steps=40))
    losses = [row["train/loss"] for row in read_metrics(tmp_path / "run/metrics.jsonl")]
    assert losses[0] > 3.3
    assert losses[-1] < 2.8


@pytest.mark.parametrize("done", [1, 4, 9])
def test_resuming_equals_an_unbroken_run(new_step, windows, tmp_path, unbroken, done):
    out = tmp_path / "run"
    train(new_step(), windows, RunOptions(out=out, steps=done))
    train(new_step(), windows, RunOptions(out=out, steps=10, resume=True))
    assert contents(out) == unbroken


def test_threads_do_not_change_the_result(artifact_path, data_file, tmp_path, unbroken):
    run = run_toy(artifact_path, data_file, tmp_path / "run", steps=10, threads=1)
    assert (run.returncode, run.stderr) == (0, "")
    assert contents(tmp_path / "run") == unbroken


@pytest.mark.parametrize("at", [1, 5])
def test_kill_9_between_saves_loses_only_the_steps_since(artifact_path, data_file, tmp_path, unbroken, at):
    out = tmp_path / "run"
    run = run_toy(artifact_path, data_file, out, steps=10, checkpoint_every=2, action="kill", at=at)
    assert run.returncode == -signal.SIGKILL
    assert len(read_metrics(out / "metrics.jsonl")) == at
    run = run_toy(artifact_path, data_file, out, steps=10, resume=True)
    assert (run.returncode, run.stderr) == (0, "")
    assert contents(out) == unbroken


def save_points(count: int) -> list:
    """Some points for every run of the tests, all of them for the full one."""
    quick = {3, 16, 23, 29, 40, 47, 58}
    return [n if n in quick else pytest.param(n, marks=pytest.mark.slow) for n in range(1, count + 1)]


@pytest.mark.parametrize("kill_at", save_points(85))
def test_kill_9_inside_a_save(new_step, windows, artifact_path, data_file, tmp_path, unbroken, kill_at):
    """The points of the first three saves, one of which deletes an old checkpoint."""
    out = tmp_path / "run"
    run = run_toy(artifact_path, data_file, out, steps=10, checkpoint_every=2, keep=1, kill_at=kill_at)
    assert run.returncode == -signal.SIGKILL
    train(new_step(), windows, RunOptions(out=out, steps=10, resume=True, keep=1))
    assert contents(out) == unbroken
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == ["latest", "step-00000010.safetensors"]


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_the_run_with_a_checkpoint(new_step, windows, artifact_path, data_file, tmp_path, unbroken, name):
    out = tmp_path / "run"
    run = run_toy(artifact_path, data_file, out, steps=10, action=name, at=3)
    assert (run.returncode, run.stderr) == (130, "")
    assert run.stdout.startswith(f"Interrupted: stopped by {name} after step 3")
    assert (out / "checkpoints/latest").read_text() == "step-00000003.safetensors\n"
    train(new_step(), windows, RunOptions(out=out, steps=10, resume=True))
    assert contents(out) == unbroken


def test_signal_handlers_are_put_back(new_step, windows, tmp_path):
    class Stop(Silent):
        def step(self, step, metrics):
            if step == 2:
                os.kill(os.getpid(), signal.SIGINT)

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(Interrupted, match="after step 2"):
        train(new_step(), windows, RunOptions(out=tmp_path / "run", steps=10), Stop())
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    train(new_step(), windows, RunOptions(out=tmp_path / "run", steps=3, resume=True))
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_second_signal_ends_the_process(new_step, windows, tmp_path):
    class Impatient(Silent):
        def step(self, step, metrics):
            # Two that came from outside could be one: the second may arrive before the first is seen.
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(new_step(), windows, RunOptions(out=tmp_path / "run", steps=10), Impatient())


def test_callbacks_see_the_run(new_step, windows, tmp_path):
    calls = []

    class Recorder:
        def begin(self, title, total_steps, done_steps=0):
            calls.append(("begin", total_steps, done_steps))

        def step(self, step, metrics):
            calls.append(("step", step, metrics["step"]))

        def note(self, text):
            calls.append(("note", text.split()[0]))

        def end(self):
            calls.append(("end",))

    train(new_step(), windows, RunOptions(out=tmp_path / "run", steps=2), Recorder())
    train(new_step(), windows, RunOptions(out=tmp_path / "run", steps=3, resume=True), Recorder())
    assert calls == [
        ("begin", 2, 0),
        ("step", 1, 1),
        ("step", 2, 2),
        ("end",),
        ("note", "resumed"),
        ("begin", 3, 2),
        ("step", 3, 3),
        ("end",),
    ]


def test_a_folder_with_a_run_is_not_overwritten(new_step, windows, tmp_path):
    out = tmp_path / "run"
    train(new_step(), windows, RunOptions(out=out, steps=2))
    before = contents(out)
    with pytest.raises(UsageError, match="holds a run already"):
        train(new_step(), windows, RunOptions(out=out, steps=4))
    assert contents(out) == before
    with pytest.raises(UsageError, match="at step 2 already"):
        train(new_step(), windows, RunOptions(out=out, steps=1, resume=True))
    report = train(new_step(), windows, RunOptions(out=out, steps=2, resume=True))
    assert (report.step, report.last) == (2, None)
    assert contents(out) == before


def test_two_runs_do_not_write_to_one_folder(new_step, windows, tmp_path):
    out, tried = tmp_path / "run", []

    class Second(Silent):
        def step(self, step, metrics):
            if step == 2:
                before = (out / "metrics.jsonl").read_bytes()
                for resume in (False, True):
                    with pytest.raises(UsageError, match=r"another run is writing to .*run; give this one another"):
                        train(new_step(), windows, RunOptions(out=out, steps=4, resume=resume))
                    tried.append(resume)
                assert (out / "metrics.jsonl").read_bytes() == before
                assert not list((out / "checkpoints").iterdir())

    assert train(new_step(), windows, RunOptions(out=out, steps=3), Second()).step == 3
    assert tried == [False, True]
    assert train(new_step(), windows, RunOptions(out=out, steps=4, resume=True)).step == 4


def test_resuming_nothing_starts(new_step, windows, tmp_path):
    report = train(new_step(), windows, RunOptions(out=tmp_path / "run", steps=2, resume=True))
    assert (report.first_step, report.step) == (0, 2)


def test_what_does_not_fit_a_resumed_run_is_named(new_step, windows, data_file, tmp_path):
    out = tmp_path / "run"
    train(new_step(), windows, RunOptions(out=out, steps=2, seed=3))
    resume = RunOptions(out=out, steps=4, resume=True)
    for change, text in (
        ({"optimizer": {"lr": 0.05, "betas": [0.9, 0.98]}}, r"optimizer\.betas must be"),
        ({"schedule": None}, "schedule must be None"),
        ({"accumulation_steps": 4}, r"batch\.accumulation_steps must be 4, the checkpoint has 2"),
    ):
        with pytest.raises(CheckpointError, match=text):
            train(new_step(**change), windows, resume)
    with pytest.raises(UsageError, match="has seed 3, got 4"):
        train(new_step(), windows, RunOptions(out=out, steps=4, resume=True, seed=4))
    with pytest.raises(DataError, match="trained on other data"):
        train(new_step(), windows.split(0.5)[0], resume)
    assert train(new_step(), windows, resume).step == 4


def test_a_loss_that_is_not_finite_stops_the_run(new_step, windows, tmp_path, monkeypatch):
    out, step = tmp_path / "run", new_step()
    real = step.driver.bind_step

    def damage(inputs, random):
        if step.state.step == 5:
            step.state.params.views()["b"][...] = np.nan
        return real(inputs, random)

    monkeypatch.setattr(step.driver, "bind_step", damage)
    with pytest.raises(NumericsError, match=r"step 6: .*'b'"):
        train(step, windows, RunOptions(out=out, steps=10, checkpoint_every=2))
    assert (out / "checkpoints/latest").read_text() == "step-00000004.safetensors\n"
    assert len(read_metrics(out / "metrics.jsonl")) == 5


@pytest.mark.parametrize("name", ["steps", "keep", "checkpoint_every"])
def test_options_are_checked(tmp_path, name):
    with pytest.raises(UsageError, match=f"{name} must be at least 1, got 0"):
        RunOptions(**{"out": tmp_path, "steps": 1, name: 0})


def test_the_run_folder_must_be_writable(new_step, windows, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(CheckpointError, match="cannot be used"):
        train(new_step(), windows, RunOptions(out=tmp_path / "file", steps=1))
