"""Files written whole or not at all."""

import hashlib
import os

import pytest

from trainc.core import files
from trainc.core.files import atomic_write, canonical_json, remove_leftovers, sha256_file


def test_write_and_replace(tmp_path):
    atomic_write(tmp_path / "f", b"one")
    atomic_write(tmp_path / "f", lambda stream: stream.write(b"two") and None)
    assert (tmp_path / "f").read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["f"]


def test_a_failure_leaves_the_old_content(tmp_path):
    atomic_write(tmp_path / "f", b"old")

    def fail(stream):
        stream.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        atomic_write(tmp_path / "f", fail)
    assert (tmp_path / "f").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]


def test_the_order_of_what_makes_it_durable(tmp_path, monkeypatch):
    events = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(files.os, "fsync", lambda fd: events.append(os.fstat(fd).st_mode >> 12) or fsync(fd))
    monkeypatch.setattr(files.os, "replace", lambda *paths: events.append("replace") or replace(*paths))
    atomic_write(tmp_path / "f", b"x")
    file, folder = 0o10, 0o4
    assert events == [file, "replace", folder]


def test_a_missing_folder(tmp_path):
    with pytest.raises(FileNotFoundError):
        atomic_write(tmp_path / "nothere" / "f", b"x")


def test_leftovers(tmp_path):
    for name in (f".f.{os.getpid()}-00112233.tmp", ".f.999999999-00112233.tmp", f".f.{os.getppid()}-00112233.tmp"):
        (tmp_path / name).write_bytes(b"")
    for name in ("f.tmp", ".f.1-xyz.tmp", ".hidden"):
        (tmp_path / name).write_bytes(b"")
    assert len(remove_leftovers(tmp_path)) == 2
    assert {path.name for path in tmp_path.iterdir()} == {
        f".f.{os.getppid()}-00112233.tmp",
        "f.tmp",
        ".f.1-xyz.tmp",
        ".hidden",
    }


def test_sha256(tmp_path):
    (tmp_path / "f").write_bytes(b"abc" * 100_000)
    assert sha256_file(tmp_path / "f") == hashlib.sha256(b"abc" * 100_000).hexdigest()


def test_canonical_json():
    assert canonical_json({"b": [1, 2.5, None], "a": "\u00e9"}) == '{"a":"\\u00e9","b":[1,2.5,null]}'
    assert canonical_json({"x": 1, "y": 2}) == canonical_json({"y": 2, "x": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(float("nan"))
