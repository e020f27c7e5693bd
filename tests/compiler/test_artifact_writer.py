"""Writing artifact folders: whole or not at all, over artifacts only."""

import dataclasses
import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainc.compiler import artifact_writer
from trainc.compiler.artifact_writer import write_artifact
from trainc.core.errors import ArtifactError
from trainc.core.manifest import Argument, Entry, Manifest, Result, Target
from trainc.core.state_table import StateTable


def manifest(**changes):
    table = StateTable.build("params", [("embed.weight", (7, 3))])
    made = Manifest(
        trainc_version="0.1.0",
        kind="samba",
        config={"d_model": 3},
        settings={},
        numeric_mode="deterministic",
        precision="f32",
        state={"params": table},
        entries={
            "gradients": Entry(
                "gradients",
                "train",
                (Argument("params", "state", (table.size,), "f32", "params"),),
                (Result("loss", "tensor", (), "f32"),),
            )
        },
        targets={"cpu": Target("local-task", "znver4", ("avx2",), (), {})},
        compiler={"version": "3.13.0", "flags": ["-x"]},
    )
    return dataclasses.replace(made, **changes)


MODULES = {"cpu": {"train": b"train module", "common": b"common module"}}


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()
    }


def test_an_artifact_is_the_manifest_and_the_modules(tmp_path):
    out = tmp_path / "deep" / "a.trainc"
    written = write_artifact(out, manifest(), MODULES)
    files = contents(out)
    assert set(files) == {"manifest.json", "modules/cpu/train.vmfb", "modules/cpu/common.vmfb"}
    assert Manifest.from_text(files["manifest.json"].decode()) == written
    module = written.targets["cpu"].modules["train"]
    assert files[module.path] == b"train module"
    assert (module.sha256, module.size_bytes) == (hashlib.sha256(b"train module").hexdigest(), 12)
    assert os.listdir(out.parent) == ["a.trainc"]


def test_an_artifact_is_replaced_whole(tmp_path):
    out = tmp_path / "a.trainc"
    write_artifact(out, manifest(), MODULES | {"cpu": MODULES["cpu"] | {"old": b"old"}})
    write_artifact(out, manifest(kind="other"), MODULES)
    assert set(contents(out)) == {"manifest.json", "modules/cpu/train.vmfb", "modules/cpu/common.vmfb"}
    assert Manifest.from_text((out / "manifest.json").read_text()).kind == "other"
    assert os.listdir(tmp_path) == ["a.trainc"]


def test_an_artifact_is_replaced_where_names_cannot_be_swapped(tmp_path, monkeypatch):
    monkeypatch.setattr(artifact_writer, "_exchange", lambda one, other: False)
    test_an_artifact_is_replaced_whole(tmp_path)


def test_a_failed_second_rename_puts_the_old_artifact_back(tmp_path, monkeypatch):
    out = tmp_path / "a.trainc"
    write_artifact(out, manifest(), MODULES)
    before = contents(out)
    monkeypatch.setattr(artifact_writer, "_exchange", lambda one, other: False)
    rename = os.rename

    def failing(source, destination):
        if ".partial-" in str(source):
            raise OSError(errno.EIO, "Input/output error")
        rename(source, destination)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(ArtifactError, match="Input/output error"):
        write_artifact(out, manifest(kind="other"), MODULES)
    assert contents(out) == before
    assert os.listdir(tmp_path) == ["a.trainc"]


def test_a_link_stays_a_link(tmp_path):
    link = tmp_path / "latest.trainc"
    link.symlink_to(tmp_path / "real.trainc")
    for kind in ("one", "two"):
        write_artifact(link, manifest(kind=kind), MODULES)
    assert link.is_symlink()
    assert Manifest.from_text((tmp_path / "real.trainc" / "manifest.json").read_text()).kind == "two"


def test_an_empty_folder_is_taken(tmp_path):
    write_artifact(tmp_path, manifest(), MODULES)
    assert (tmp_path / "manifest.json").exists()


def other_folder(path):
    path.mkdir()
    (path / "thesis.tex").write_text("years of work")


def other_manifest(path):
    path.mkdir()
    (path / "manifest.json").write_text(json.dumps({"format": "web-extension"}))


def broken_manifest(path):
    path.mkdir()
    (path / "manifest.json").write_text("{")


def list_manifest(path):
    path.mkdir()
    (path / "manifest.json").write_text("[]")


def artifact_with_extras(path):
    write_artifact(path, manifest(), MODULES)
    (path / "checkpoint.safetensors").write_text("weights")


def plain_file(path):
    path.write_text("text")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (other_folder, "not a trainc artifact"),
        (other_manifest, "not a trainc artifact"),
        (broken_manifest, "not a trainc artifact"),
        (list_manifest, "not a trainc artifact"),
        (artifact_with_extras, "also holds 'checkpoint.safetensors'"),
        (plain_file, "it is a file"),
    ],
)
def test_what_is_not_an_artifact_is_left_alone(tmp_path, make, message):
    out = tmp_path / "a.trainc"
    make(out)
    before = contents(tmp_path)
    with pytest.raises(ArtifactError, match=message):
        write_artifact(out, manifest(), MODULES)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("changes", "modules", "message"),
    [
        ({}, {"gpu": MODULES["cpu"]}, r"\['cpu'\] were expected, got those of \['gpu'\]"),
        ({}, {"cpu": {"common": b""}}, "entries.gradients.module"),
        ({}, {"cpu": MODULES["cpu"] | {"../up": b""}}, "got '../up'"),
        ({}, {"cpu": MODULES["cpu"] | {".": b""}}, "got '.'"),
        ({"numeric_mode": "loose"}, MODULES, "numeric_mode"),
    ],
)
def test_a_manifest_that_does_not_fit_writes_nothing(tmp_path, changes, modules, message):
    with pytest.raises(ArtifactError, match=message):
        write_artifact(tmp_path / "a.trainc", manifest(**changes), modules)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("failing_file", ["train.vmfb", "common.vmfb", "manifest.json"])
def test_a_full_disk_leaves_the_old_artifact(tmp_path, monkeypatch, failing_file):
    out = tmp_path / "a.trainc"
    write_artifact(out, manifest(), MODULES)
    before = contents(tmp_path)
    write = artifact_writer.atomic_write

    def full(path, content):
        if Path(path).name == failing_file:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, content)

    monkeypatch.setattr(artifact_writer, "atomic_write", full)
    with pytest.raises(ArtifactError, match="No space left on device"):
        write_artifact(out, manifest(kind="other"), MODULES)
    assert contents(tmp_path) == before
    assert os.listdir(tmp_path) == ["a.trainc"]


def test_a_parent_that_is_a_file_is_an_artifact_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="cannot be written"):
        write_artifact(tmp_path / "file" / "a.trainc", manifest(), MODULES)


def test_old_leftovers_go_and_fresh_ones_stay(tmp_path):
    old, fresh = tmp_path / ".a[1].trainc.partial-00000000", tmp_path / ".a[1].trainc.partial-11111111"
    for folder in (old, fresh):
        (folder / "modules").mkdir(parents=True)
    os.utime(old, (time.time() - 7200,) * 2)
    write_artifact(tmp_path / "a[1].trainc", manifest(), MODULES)
    assert not old.exists()
    assert fresh.exists()


WRITER = """
import sys
from tests.compiler.test_artifact_writer import MODULES, manifest
from trainc.compiler.artifact_writer import write_artifact
print("ready", flush=True)
while True:
    write_artifact(sys.argv[1], manifest(kind=sys.argv[2]), {"cpu": MODULES["cpu"] | {"train": sys.argv[2].encode()}})
"""


def test_readers_see_whole_artifacts_while_two_writers_work_and_die(tmp_path):
    out = tmp_path / "a.trainc"
    write_artifact(out, manifest(kind="zero"), MODULES | {"cpu": MODULES["cpu"] | {"train": b"zero"}})
    root = Path(__file__).resolve().parents[2]
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, out, kind], cwd=root, stdout=subprocess.PIPE, text=True)
        for kind in ("one", "two")
    ]
    try:
        for writer in writers:
            assert writer.stdout.readline() == "ready\n"
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            folder = os.open(out, os.O_RDONLY)  # one folder, whatever takes its name meanwhile
            try:
                text = read_at(folder, "manifest.json")
                if text is not None:  # None: this folder was replaced and is being removed
                    assert Manifest.from_text(text).kind in ("zero", "one", "two")
            finally:
                os.close(folder)
            assert out.exists()
    finally:
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
            writer.communicate()
    final = Manifest.from_text((out / "manifest.json").read_text())
    assert (out / "modules/cpu/train.vmfb").read_bytes() == final.kind.encode()


def read_at(folder, name):
    try:
        descriptor = os.open(name, os.O_RDONLY, dir_fd=folder)
    except FileNotFoundError:
        return None
    with open(descriptor, encoding="utf-8") as stream:
        return stream.read()
