"""Opening artifacts: whatever is not exactly right is refused by name."""

import json
import shutil

import numpy as np
import pytest

from trainc.core.errors import ArtifactError, DeviceError
from trainc.runtime import cpu_features
from trainc.runtime.artifact import Artifact
from trainc.runtime.discovery import DeviceInfo
from trainc.runtime.program import Program

CPU = DeviceInfo("cpu", "local-task", "A Chip", kind="cpu")


@pytest.fixture
def folder(artifact_path, tmp_path):
    return shutil.copytree(artifact_path, tmp_path / "copy.trainc")


def change(folder, edit):
    manifest = json.loads((folder / "manifest.json").read_text())
    edit(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_open(folder):
    artifact = Artifact.open(folder)
    assert artifact.manifest.kind == "toy"
    name, target = artifact.target(CPU)
    assert name == "cpu"
    assert target.modules["toy"].path == "modules/cpu/toy.vmfb"


def test_not_an_artifact(tmp_path):
    with pytest.raises(ArtifactError, match="does not exist"):
        Artifact.open(tmp_path / "nothere")
    with pytest.raises(ArtifactError, match=r"holds no manifest\.json"):
        Artifact.open(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArtifactError, match="is a file"):
        Artifact.open(tmp_path / "file")
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(ArtifactError, match="not JSON"):
        Artifact.open(tmp_path)
    (tmp_path / "manifest.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ArtifactError, match="cannot be read"):
        Artifact.open(tmp_path)


def test_a_damaged_module_is_named(folder):
    path = folder / "modules/cpu/toy.vmfb"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(ArtifactError, match=rf"toy\.vmfb is damaged: expected {len(whole)} bytes"):
        Artifact.open(folder)
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ArtifactError, match=r"toy\.vmfb is damaged: expected SHA-256"):
        Artifact.open(folder)
    path.unlink()
    with pytest.raises(ArtifactError, match=r"toy\.vmfb cannot be read"):
        Artifact.open(folder)


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (lambda m: m.update(format="other"), "format must be one of"),
        (lambda m: m.update(format_version=3), "format_version must be 2, got 3"),
        (lambda m: m.update(surprise=1), "surprise is not known"),
        (lambda m: m["targets"]["cpu"]["modules"]["toy"].update(path="../x"), "must stay inside the artifact"),
    ],
)
def test_an_unknown_manifest_is_refused(folder, edit, text):
    change(folder, edit)
    with pytest.raises(ArtifactError, match=text) as caught:
        Artifact.open(folder)
    assert str(folder) in str(caught.value)


def test_other_devices_and_processors_are_refused(folder, monkeypatch):
    artifact = Artifact.open(folder)
    with pytest.raises(
        DeviceError, match=r"compiled for: cpu \(local-task\); found cuda:0 \(A Card, sm_90\), for which"
    ):
        artifact.target(DeviceInfo("cuda:0", "cuda", "A Card", arch="sm_90"))
    change(folder, lambda m: m["targets"]["cpu"].update(arch="future9", features=["avx2", "avx99", "+avx1024f"]))
    monkeypatch.setattr(cpu_features, "machine", lambda: ("Old Chip", frozenset({"avx2"})))
    with pytest.raises(DeviceError, match=r"compiled for future9 with avx99, avx1024f, found Old Chip without"):
        Artifact.open(folder).target(DeviceInfo("cpu", "local-task", "Old Chip", kind="cpu"))


@pytest.mark.parametrize(
    ("features", "missing"),
    [
        (["sse4.2", "avx512vnni", "bmi", "sha", "fma", "lzcnt"], []),
        (["avx512bf16"], ["avx512bf16"]),
        (["wbnoinvd", "64bit", "shstk", "clzero", "-avx512fp16"], []),
        (["sse4a", "gfni"], ["sse4a", "gfni"]),
    ],
)
def test_feature_names(monkeypatch, features, missing):
    flags = frozenset("sse4_2 avx512_vnni bmi1 sha_ni fma abm".split())
    monkeypatch.setattr(cpu_features, "machine", lambda: ("chip", flags))
    assert cpu_features.missing(features) == missing


def test_without_a_list_of_features_nothing_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(cpu_features, "CPUINFO", tmp_path / "nothere")
    assert cpu_features.machine.__wrapped__() is None
    monkeypatch.setattr(cpu_features, "machine", lambda: None)
    assert cpu_features.missing(["avx512f"]) == []


def test_what_this_machine_says():
    here = cpu_features.machine()
    assert here is None or (here[0] and here[1])


def test_an_entry_that_the_module_lacks(folder, device):
    change(folder, lambda m: m["entries"]["norms"].update(function="other"))
    change(folder, lambda m: m["entries"]["accumulate"].update(results=[]))
    program = Program(Artifact.open(folder), device)
    grads = program.new_state("params")
    with pytest.raises(ArtifactError, match="no function 'other'"):
        program.call("norms", {"grads": grads})
    with pytest.raises(ArtifactError, match="no result"):
        program.call("accumulate", {"grads": grads, "accum": grads})


def test_an_entry_of_another_shape_than_the_manifest_says(folder, device):
    for name in ("ids", "targets"):
        change(folder, lambda m, name=name: argument(m, name).update(shape=[3, 8]))
    program = Program(Artifact.open(folder), device)
    params, grads = program.new_state("params"), program.new_state("params")
    ids = np.zeros((3, 8), np.int32)
    with pytest.raises(ArtifactError, match=r"'gradients' is not what the manifest of .* says"):
        program.call("gradients", {"params": params, "grads": grads, "ids": ids, "targets": ids, "divisor": 1.0})


def argument(manifest, name):
    return next(arg for arg in manifest["entries"]["gradients"]["args"] if arg["name"] == name)


def test_a_module_that_is_none(folder, device):
    import hashlib

    (folder / "modules/cpu/toy.vmfb").write_bytes(b"not a module" * 100)
    digest = hashlib.sha256(b"not a module" * 100).hexdigest()
    change(folder, lambda m: m["targets"]["cpu"]["modules"]["toy"].update(sha256=digest, size_bytes=1200))
    program = Program(Artifact.open(folder), device)
    with pytest.raises(ArtifactError, match=r"toy\.vmfb does not load"):
        program.call("norms", {"grads": program.new_state("params")})
