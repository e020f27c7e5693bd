"""The check of a device: whole on this CPU, and what it reports when a part is wrong, fails or hangs."""

import dataclasses
import json
import shutil
import sys

import pytest

from benchmarks import gpu_check
from benchmarks.gpu import parts
from benchmarks.gpu.child import Said, run_part
from benchmarks.gpu.job import Job, batches
from trainc.core.errors import ArtifactError
from trainc.frontends.drivers import driver_for
from trainc.runtime.artifact import Artifact

DEVICE = {"name": "cuda:0", "hardware": "card"}
GOOD = {"entry": "update", "output": "params.*", "error": 1e-7, "tolerance": 1e-6, "ok": True}
WRONG = GOOD | {"error": None, "ok": False}


@pytest.fixture
def run_check(artifact, monkeypatch, tmp_path):
    """Runs the check; `says` tells what each part answers, by what its module ends in and its device."""

    def run(says=None, *arguments):
        if says is not None:

            def answer(module, arguments=(), questions=(), **_):
                device = questions[0]["device"] if questions else arguments[-1]
                return says(module.rpartition(".")[2], device, questions)

            monkeypatch.setattr(parts, "run_part", answer)
        out = tmp_path / "result.json"
        monkeypatch.setattr(sys, "argv", ["gpu_check", str(artifact), "--out", str(out), *arguments])
        return gpu_check.main(), json.loads(out.read_text()) if out.exists() else None

    return run


def steps(questions, *, time_s=0.25, shift=0.0):
    """Losses that fall, and a constant time a step."""
    counts = [question["steps"] for question in questions[1:]]
    answers, at = [{"version": "a 1"}], 0
    for count in counts:
        answers.append({"losses": [5.0 - 0.01 * (at + i) + shift for i in range(count)], "times_s": [time_s] * count})
        at += count
    return Said(tuple(answers), 1.0, "")


def good(module, device, questions):
    """What the parts answer where all is well; torch is twice as slow."""
    if module == "verify":
        return Said(({"device": DEVICE}, {"target": "sm_80"}, {"running": "x"}, {"outputs": [GOOD]}), 1.0, "")
    return steps(questions, time_s=0.5 if module == "torch_step" else 0.25)


@pytest.fixture
def narrow(artifact, tmp_path):
    """The artifact, said to be in bf16."""
    copy = tmp_path / "narrow.trainc"
    shutil.copytree(artifact, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps(manifest | {"precision": "bf16", "numeric_mode": "fast"}))
    return copy


def in_bf16(questions):
    return questions[0]["artifact"].endswith("narrow.trainc")


def test_a_good_device_passes_with_ratios_to_every_form_of_torch(run_check):
    status, report = run_check(good)
    assert status == 0
    assert report["complete"]
    assert report["verify"]["device"] == DEVICE
    assert report["verify"]["target"] == "sm_80"
    assert report["losses"]["steps"] == 200
    assert report["losses"]["largest_early"] == report["losses"]["largest_late"] == 0
    for name in ("torch eager f32", "torch.compile f32", "torch eager bf16", "torch.compile bf16"):
        assert report[name]["ratio_median"] == 0.5
        assert report[name]["same_as_trainc"]
        assert report[name]["steps"] == parts.TIMED_STEPS
    assert report["versions"]["numpy"]


def test_an_artifact_in_bf16_is_checked_beside_and_compared_with_torch_in_bf16(run_check, narrow):
    def says(module, device, questions):
        if module != "device_step":
            return good(module, device, questions)
        return steps(questions, time_s=0.1 if in_bf16(questions) else 0.25)

    status, report = run_check(says, "--bf16", str(narrow))
    assert status == 0
    assert len(report["verify bf16"]["outputs"]) == 1
    assert report["losses bf16"]["tolerances"] != report["losses"]["tolerances"]
    assert report["torch.compile f32"]["ratio_median"] == 0.5
    assert report["torch.compile bf16"]["ratio_median"] == 0.2


@pytest.mark.parametrize(("shift", "status"), [(2e-2, 0), (3e-2, 6)])  # of losses near 5, where 5e-3 is allowed
def test_losses_in_bf16_may_be_further_from_the_cpus(run_check, narrow, shift, status):
    def says(module, device, questions):
        if module != "device_step":
            return good(module, device, questions)
        return steps(questions, shift=shift if in_bf16(questions) else 0.0)

    got, report = run_check(says, "--bf16", str(narrow), "--no-torch")
    assert got == status
    assert report["losses"]["ok"]
    wrong = ["losses bf16: they are too far from the CPU's"] if status else []
    assert report["status"]["wrong"] == wrong


def test_a_wrong_output_in_bf16_is_told():
    bad = {"problem": "", "outputs": [WRONG], "wrong": [WRONG]}
    assert parts.status({"verify bf16": bad})["wrong"] == ["verify bf16: update, params.*"]
    assert parts.status({"verify bf16": bad})["exit"] == 6


def test_only_the_same_model_in_bf16_is_taken_beside(run_check, artifact, narrow, capsys):
    status, report = run_check(good, "--bf16", str(artifact))
    assert (status, report) == (4, None)
    assert "should be compiled with --precision bf16, but is in f32" in capsys.readouterr().err
    manifest = json.loads((narrow / "manifest.json").read_text())
    manifest["settings"]["optimizer"]["lr"] *= 2
    (narrow / "manifest.json").write_text(json.dumps(manifest))
    assert run_check(good, "--bf16", str(narrow)) == (4, None)
    assert "another model, batch or optimizer" in capsys.readouterr().err


@pytest.mark.parametrize(("shift", "status"), [(4e-4, 0), (6e-4, 6)])  # of losses near 5, where 1e-4 is allowed
def test_losses_that_leave_the_cpus_are_wrong(run_check, shift, status):
    def says(module, device, questions):
        off = shift if module == "device_step" and device == "cuda" else 0.0
        return steps(questions, shift=off) if module != "verify" else good(module, device, questions)

    got, report = run_check(says, "--no-torch")
    assert got == status
    assert report["losses"]["ok"] == (status == 0)


def test_a_wrong_output_is_told_and_the_rest_still_runs(run_check, capsys):
    def says(module, device, questions):
        if module == "verify":
            return Said(({"device": DEVICE}, {"outputs": [GOOD, WRONG]}), 1.0, "")
        return good(module, device, questions)

    status, report = run_check(says)
    assert status == 6
    assert report["status"]["wrong"] == ["verify: update, params.*"]
    assert "torch.compile bf16" in report
    assert "verify: 2 outputs, 1 wrong" in capsys.readouterr().err


def test_what_was_done_before_a_device_hung_is_kept(run_check):
    def says(module, device, questions):
        if module == "verify":
            return Said(({"device": DEVICE}, {"running": "verifying update"}), 9.0, "it was stopped after 9 s")
        if module == "device_step" and device == "cuda":
            return dataclasses.replace(steps(questions[:4]), problem="it was stopped after 9 s")
        return good(module, device, questions)

    status, report = run_check(says)
    assert status == 5
    assert report["verify"]["problem"] == "it was stopped after 9 s, after: verifying update"
    assert report["losses"]["steps"] == 30
    assert report["complete"]


def test_torch_without_the_device_does_not_fail_the_check(run_check):
    def says(module, device, questions):
        if module == "torch_step":
            assert device == "cuda"
            return Said((), 1.0, "it ended with status 1: no CUDA")
        return good(module, device, questions)

    status, report = run_check(says)
    assert status == 0
    assert "ratio_median" not in report["torch eager f32"]
    assert "torch eager f32: it ended with status 1: no CUDA" in report["status"]["problems"]


def test_torch_that_computes_something_else_is_told(run_check):
    def says(module, device, questions):
        return steps(questions, shift=1.0) if module == "torch_step" else good(module, device, questions)

    assert not run_check(says)[1]["torch eager f32"]["same_as_trainc"]


@pytest.mark.parametrize(("device", "expected"), [("cuda:1", "cuda:1"), ("rocm", "cuda"), ("vulkan:2", "cuda")])
def test_torch_gets_its_own_name_of_the_device(run_check, device, expected):
    asked = set()

    def says(module, device, questions):
        if module == "torch_step":
            asked.add(device)
        return good(module, device, questions)

    run_check(says, "--device", device)
    assert asked == {expected}


def test_a_recorded_curve_takes_the_place_of_the_cpu(run_check, tmp_path):
    curve = tmp_path / "curve.json"
    status, _ = run_check(good, "--record", str(curve), "--steps", "25")
    assert status == 0
    assert len(json.loads(curve.read_text())["losses"]) == 25

    def says(module, device, questions):
        assert device != "cpu"
        return good(module, device, questions)

    status, report = run_check(says, "--curve", str(curve), "--no-torch")
    assert status == 0
    assert report["losses"]["steps"] == 25
    assert report["cpu_training"]["from"] == "curve.json"


def test_a_curve_of_another_model_is_refused(artifact, tmp_path):
    manifest = Artifact.open(artifact).manifest
    job = Job.write(artifact, manifest, tmp_path, 1)
    path = tmp_path / "curve.json"
    path.write_text(json.dumps({"identity": {"config": {}}, "losses": [1.0]}))
    with pytest.raises(ArtifactError, match="another model"):
        parts.read_curve(path, job)
    path.write_text("[]")
    with pytest.raises(ArtifactError, match="is no curve"):
        parts.read_curve(path, job)


def test_the_text_is_the_same_everywhere(artifact):
    windows = batches(driver_for(Artifact.open(artifact).manifest))
    assert windows.shape == (16, 4, 65)
    assert bytes(windows[0, 0, :12]) == b"qcnqolactdby"


def test_time_that_is_used_up_leaves_the_rest_out(run_check):
    status, report = run_check(None, "--limit", "0")
    assert status == 5
    assert report["complete"]
    assert report["trainc"]["problem"] == "there was no time left for it"


def test_a_part_that_hangs_is_stopped_and_what_it_said_is_kept():
    hangs = """import time; print('{"a": 1}', flush=True); print('{"cut', flush=True); time.sleep(60)"""
    said = run_part("timeit", ["-n1", "-r1", hangs], limit_s=5)
    assert said.answers == ({"a": 1},)
    assert said.problem == "it was stopped after 5 s"


def test_a_part_that_fails_says_why():
    said = run_part("benchmarks.no_such_part", limit_s=60)
    assert "No module named benchmarks.no_such_part" in said.problem


def test_the_whole_check_on_this_cpu(run_check):
    status, report = run_check(None, "--device", "cpu", "--steps", "20", "--no-torch")
    assert status == 0, report["status"]
    assert report["verify"]["device"]["driver"] == "local-task"
    assert len(report["verify"]["outputs"]) > 5
    assert report["losses"]["steps"] == 20
    assert report["losses"]["largest_early"] == 0  # the same code on the same device
    assert report["losses"]["fell"]
    assert report["trainc"]["steps"] == parts.TIMED_STEPS
