"""verify: the table, the JSON and the exit codes."""

import json
import shutil

import pytest

from trainc.cli import loading
from trainc.cli.loading import Model
from trainc.cli.progress import Reporter
from trainc.core.errors import DeviceError, NumericsError


def changed(artifact, folder, change):
    """A copy of an artifact with another self-test."""
    shutil.copytree(artifact, folder / "changed.trainc")
    path = folder / "changed.trainc/manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
    return path.parent


def double_the_loss(manifest):
    outputs = manifest["selftest"]["entries"]["gradients"]
    outputs["loss"] = outputs["grads.embed.weight"]


def test_a_right_artifact_passes(cli, artifact):
    run = cli.ok("verify", artifact)
    header, *rows = run.stdout.splitlines()
    assert header.split("  ")[0] == "ENTRY"
    entries = json.loads((artifact / "manifest.json").read_text())["entries"]
    assert [row.split()[0] for row in rows] == list(entries)
    assert all(row.endswith("ok") for row in rows)
    assert "verifying gradients" in run.stderr
    assert cli.ok("verify", artifact, "--quiet").stderr == ""


def test_json_has_every_output(cli, artifact):
    result = json.loads(cli.ok("verify", artifact, "--json", "--quiet").stdout)
    assert result["ok"] is True
    assert result["device"] == "cpu"
    names = {(one["entry"], one["output"]) for one in result["outputs"]}
    assert {("gradients", "grads.embed.weight"), ("update", "params.*"), ("selftest_softmax", "rows")} < names
    assert all(one["error"] <= one["tolerance"] for one in result["outputs"])


def test_a_wrong_number_is_6_and_named(cli, artifact, tmp_path):
    wrong = changed(artifact, tmp_path, double_the_loss)
    run = cli("verify", wrong, "--quiet")
    assert run.returncode == 6
    (failed,) = [row for row in run.stdout.splitlines() if row.endswith("FAILED")]
    assert failed.split()[:3] == ["gradients", "loss", "cpu"]
    assert "entry 'gradients', output 'loss'" in run.stderr
    result = cli("verify", wrong, "--json", "--quiet")
    assert json.loads(result.stdout)["ok"] is False
    assert json.loads(result.stderr)["error"]["exit_code"] == 6


def test_an_artifact_without_a_selftest_is_4(cli, artifact, tmp_path):
    bare = changed(artifact, tmp_path, lambda manifest: manifest.update(selftest=None))
    assert "has no self-test" in cli.fails(4, "verify", bare, "--quiet")


@pytest.mark.parametrize("verb", ["run", "eval", "sample"])
def test_the_verbs_that_use_a_device_can_skip_it(cli, verb):
    assert "--no-verify" in cli.ok(verb, "--help").stdout


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_a_device_is_asked_for_before_it_is_used(artifact, monkeypatch, device):
    asked = []
    monkeypatch.setattr(loading, "require_verified", lambda program, tell: asked.append(program.device.name))
    model = Model.open(artifact)
    program = model.verified_program(device, Reporter(quiet=True), no_verify=False)
    assert set(asked) == {program.device.name}
    asked.clear()
    model.verified_program(device, Reporter(quiet=True), no_verify=True)
    assert asked == []


def test_auto_passes_over_a_device_with_wrong_numbers(artifact, monkeypatch):
    def refuse(program, tell):
        raise NumericsError("entry 'update' is wrong")

    monkeypatch.setattr(loading, "require_verified", refuse)
    with pytest.raises(DeviceError, match=r"no device here runs .*cpu: entry 'update' is wrong"):
        Model.open(artifact).verified_program("auto", Reporter(quiet=True), no_verify=False)
