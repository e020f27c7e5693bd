"""Training, evaluation and sampling from the command line."""

import json
import os
import signal
import subprocess
import time

import pytest


def rows(run) -> list[dict]:
    """Metrics without what depends on the clock and the machine."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if not k.startswith(("perf/", "mem/"))} for line in lines]


def test_a_run_leaves_metrics_and_checkpoints(run):
    assert [row["step"] for row in rows(run)] == [1, 2, 3, 4]
    assert {"train/loss", "train/grad_norm", "train/lr"} < set(rows(run)[0])
    names = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert names == ["latest", "step-00000002.safetensors", "step-00000004.safetensors"]


def test_resume_gives_the_same_bytes(cli, artifact, text, run):
    train = ["run", artifact, "--data", text, "--out", "run", "--checkpoint-every", 2]
    cli.ok(*train, "--steps", 2)
    first = json.loads(cli.ok(*train, "--steps", 4, "--resume", "--json", "--print-digest").stdout)
    assert (first["first_step"], first["step"]) == (2, 4)
    for path in (run / "checkpoints").iterdir():
        assert (cli.folder / "run/checkpoints" / path.name).read_bytes() == path.read_bytes()
    assert rows(cli.folder / "run") == rows(run)
    again = cli.ok(*train, "--steps", 4, "--resume", "--print-digest")
    assert f"digest {first['digest']}\n" in again.stdout
    assert "nothing left to do" in again.stdout


def test_several_paths_after_one_option(cli, artifact, tmp_path):
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_bytes(bytes(range(200)) * 2)
    one = cli.ok("run", artifact, "--data", "a.txt", "b.txt", "--steps", 1, "--out", "one", "--print-digest")
    other = cli.ok(
        "run", "--data", "a.txt", "--data", "b.txt", artifact, "--steps", 1, "--out", "other", "--print-digest"
    )
    assert one.stdout.splitlines()[1] == other.stdout.splitlines()[1]


def test_another_seed_is_another_run(cli, artifact, text, run):
    cli.ok("run", artifact, "--data", text, "--steps", 1, "--out", "other", "--seed", 1)
    assert rows(cli.folder / "other")[0]["train/loss"] != rows(run)[0]["train/loss"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_writes_a_checkpoint_and_exits_130(cli, artifact, text, number):
    command = cli.command("run", artifact, "--data", text, "--steps", 1_000_000, "--out", "run")
    process = subprocess.Popen(command, cwd=cli.folder, env=cli.full_environment, stderr=subprocess.PIPE, text=True)
    metrics = cli.folder / "run/metrics.jsonl"
    deadline_s = time.monotonic() + 120
    while not (metrics.exists() and metrics.read_bytes().count(b"\n") >= 2):
        assert time.monotonic() < deadline_s
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    process.send_signal(number)
    _, shown = process.communicate(timeout=120)
    assert process.returncode == 130
    last = rows(cli.folder / "run")[-1]["step"]
    path = f"run/checkpoints/step-{last:08d}.safetensors"
    assert (cli.folder / path).is_file()
    assert path in shown.splitlines()[-1]
    assert "Traceback" not in shown
    cli.ok("run", artifact, "--data", text, "--steps", last + 1, "--out", "run", "--resume")


def test_eval(cli, artifact, text, run):
    found = json.loads(cli.ok("eval", artifact, "--weights", run, "--data", text, "--json").stdout)
    assert 1.0 < found["loss"] < 6.0
    few = json.loads(cli.ok("eval", artifact, "--weights", run, "--data", text, "--max-windows", 3, "--json").stdout)
    assert few["tokens"] == 3 * 64 < found["tokens"]
    assert f"{found['loss']:.6f}" in cli.ok("eval", artifact, "--weights", run, "--data", text).stdout


def test_sample_is_reproducible_and_stops(cli, artifact, run):
    sample = ["sample", artifact, "--weights", run, "--prompt", "def ", "--max-tokens", 20]
    (one,) = json.loads(cli.ok(*sample, "--seed", 3, "--json").stdout)["samples"]
    assert len(one["tokens"]) == 20
    assert one["end"] == "length"
    raw = cli.ok(*sample, "--seed", 3, text=False)
    assert raw.stdout == bytes(one["tokens"]) + b"\n"
    assert raw.stderr == b""
    (other,) = json.loads(cli.ok(*sample, "--seed", 4, "--json").stdout)["samples"]
    assert other["tokens"] != one["tokens"]


def test_a_stop_string_may_be_any_bytes(cli, artifact, run):
    sample = ["sample", artifact, "--weights", run, "--prompt", "def ", "--max-tokens", 20, "--seed", 3]
    (one,) = json.loads(cli.ok(*sample, "--json").stdout)["samples"]
    byte = next(token for token in one["tokens"] if token >= 128)
    again = json.loads(cli.ok(*sample, "--json", "--stop", os.fsdecode(bytes([byte]))).stdout)["samples"]
    assert again[0]["tokens"] == one["tokens"][: one["tokens"].index(byte)]
    assert again[0]["end"] == "stop"


def test_greedy_sampling_ignores_the_seed(cli, artifact, run):
    sample = ["sample", artifact, "--weights", run, "--prompt", "x", "--max-tokens", 8, "--temperature", 0]
    assert cli.ok(*sample, "--seed", 1, text=False).stdout == cli.ok(*sample, "--seed", 2, text=False).stdout


def test_a_prompt_that_is_too_long_is_refused(cli, artifact, run):
    line = cli.fails(2, "sample", artifact, "--weights", run, "--prompt", "x" * 2000)
    assert "max_tokens" in line
