"""Checkpoints: what is in the file, and that nothing but a whole one of the right kind is taken."""

import errno
import hashlib
import json
import os
import resource
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from safetensors import safe_open

from trainc.core import files
from trainc.core.errors import CheckpointError
from trainc.core.state_table import StateTable
from trainc.runtime.checkpoint import read_checkpoint, write_checkpoint
from trainc.runtime.checkpoint_store import CheckpointStore, find_checkpoint

ROOT = Path(__file__).resolve().parents[2]
TABLE = StateTable.build("params", [("embed.weight", (5, 3)), ("scale", ()), ("norm.weight", (3,))])
STATE = {"kind": "toy", "step": 7, "registry": [{"name": t.name, "shape": list(t.shape)} for t in TABLE.tensors]}


def arrays(seed: int) -> dict:
    rng = np.random.default_rng(seed)
    return {t.name: np.asarray(rng.normal(size=t.shape), np.float32) for t in TABLE.tensors}


def write(path: Path, seed: int = 0, **changes) -> str:
    return write_checkpoint(path, arrays(seed), arrays(seed + 1), arrays(seed + 2), STATE | changes)


@pytest.fixture
def path(tmp_path):
    write(tmp_path / "c.safetensors")
    return tmp_path / "c.safetensors"


def rewrite(path: Path, change) -> None:
    """Write the file anew with its tensors and metadata changed, as a whole and valid safetensors file."""
    with safe_open(path, "numpy") as stream:
        metadata = stream.metadata()
    tensors = safetensors.numpy.load_file(path)
    change(tensors, metadata)
    safetensors.numpy.save_file(tensors, path, metadata)


def test_round_trip(path):
    checkpoint = read_checkpoint(path)
    assert checkpoint.state == STATE
    for part, seed in ((checkpoint.parameters, 0), (checkpoint.m, 1), (checkpoint.v, 2)):
        for name, array in arrays(seed).items():
            assert part[name].shape == array.shape
            np.testing.assert_array_equal(part[name], array)


def test_other_readers_of_safetensors_can_read_it(path):
    tensors = safetensors.numpy.load_file(path)
    assert set(tensors) == {prefix + name for prefix in ("", "optimizer.m.", "optimizer.v.") for name in TABLE.names}
    np.testing.assert_array_equal(tensors["optimizer.m.norm.weight"], arrays(1)["norm.weight"])
    with safe_open(path, "numpy") as stream:
        digests = json.loads(stream.metadata()["tensors_sha256"])
    assert digests["scale"] == hashlib.sha256(arrays(0)["scale"].tobytes()).hexdigest()


def test_equal_states_give_equal_bytes(path, tmp_path):
    digest = write(tmp_path / "again.safetensors")
    assert path.read_bytes() == (tmp_path / "again.safetensors").read_bytes()
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_no_truncation_is_taken(path):
    whole = path.read_bytes()
    for size in [*range(0, 64), *range(64, len(whole), 37), len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match=r"c\.safetensors is truncated"):
            read_checkpoint(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(CheckpointError):
        read_checkpoint(path)


def test_no_flipped_bit_is_taken(path):
    whole = path.read_bytes()
    header = 8 + struct.unpack("<Q", whole[:8])[0]
    quotes = whole.index(b'"tensors_sha256":"') + len(b'"tensors_sha256":"')  # the JSON in the JSON starts here
    for place in [*range(0, header, 23), *range(quotes, quotes + 40), *range(header, len(whole))]:
        damaged = bytearray(whole)
        damaged[place] ^= 4
        path.write_bytes(damaged)
        if place >= header or damaged[place : place + 1].strip():
            with pytest.raises(CheckpointError):
                read_checkpoint(path)


def test_a_damaged_tensor_is_named(path):
    rewrite(path, lambda tensors, metadata: tensors["optimizer.v.scale"].fill(9))
    with pytest.raises(CheckpointError, match=r"tensor 'optimizer\.v\.scale' does not match its SHA-256"):
        read_checkpoint(path)


def test_a_missing_and_an_added_tensor_are_named(path):
    rewrite(path, lambda tensors, metadata: tensors.pop("scale"))
    with pytest.raises(CheckpointError, match="tensor 'scale' is missing"):
        read_checkpoint(path)
    write(path)
    rewrite(path, lambda tensors, metadata: tensors.update(more=np.zeros(2, np.float32)))
    with pytest.raises(CheckpointError, match="tensor 'more' is unknown"):
        read_checkpoint(path)


def test_a_tensor_of_another_type_is_named(path):
    write(path)
    rewrite(path, lambda tensors, metadata: tensors.update(scale=tensors["scale"].view(np.int32)))
    with pytest.raises(CheckpointError, match="tensor 'scale' must be float32, got int32"):
        read_checkpoint(path)


def test_a_changed_list_of_digests_is_noticed(path):
    for text in ("{", "[]", "3"):
        write(path)
        rewrite(path, lambda tensors, metadata, text=text: metadata.update(tensors_sha256=text))
        with pytest.raises(CheckpointError, match="list of SHA-256"):
            read_checkpoint(path)


def test_a_changed_state_is_noticed(path):
    rewrite(path, lambda tensors, metadata: metadata.update(state=metadata["state"].replace("7", "8")))
    with pytest.raises(CheckpointError, match="state does not match"):
        read_checkpoint(path)


def test_foreign_files_are_refused(path, tmp_path):
    safetensors.numpy.save_file({"a": np.zeros(3, np.float32)}, tmp_path / "foreign.safetensors")
    with pytest.raises(CheckpointError, match="no checkpoint of trainc"):
        read_checkpoint(tmp_path / "foreign.safetensors")
    rewrite(path, lambda tensors, metadata: metadata.update(format_version="2"))
    with pytest.raises(CheckpointError, match="format version 2, this trainc reads 1"):
        read_checkpoint(path)
    (tmp_path / "text").write_text("hello, this is a text, not a checkpoint\n" * 20)
    with pytest.raises(CheckpointError, match="truncated, damaged or no checkpoint"):
        read_checkpoint(tmp_path / "text")
    with pytest.raises(CheckpointError, match="does not exist"):
        read_checkpoint(tmp_path / "nothere")
    with pytest.raises(CheckpointError, match="is no file"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("tensors", "text"),
    [
        ([("embed.weight", (5, 4)), ("scale", ()), ("norm.weight", (3,))], r"'embed\.weight' must be \(5, 4\)"),
        ([("embed.weight", (5, 3)), ("scale", ())], r"'norm\.weight' must be absent"),
        ([*[(t.name, t.shape) for t in TABLE.tensors], ("head", (2,))], r"'head' must be \(2,\), .* has none"),
    ],
)
def test_another_geometry_is_named(path, tensors, text):
    with pytest.raises(CheckpointError, match=text):
        read_checkpoint(path).require_table(StateTable.build("params", tensors))
    read_checkpoint(path).require_table(TABLE)


def test_another_state_is_named(path):
    checkpoint = read_checkpoint(path)
    checkpoint.require({"kind": "toy", "step": 7})
    with pytest.raises(CheckpointError, match="kind must be 'other', the checkpoint has 'toy'"):
        checkpoint.require({"kind": "other"})


def failing(call: int):
    """An fsync or write that finds the disk full at its n-th call."""
    calls = [0]

    def fail(*args, **options):
        calls[0] += 1
        if calls[0] == call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return fail


@pytest.mark.parametrize("folder", [".", "/"])
def test_a_path_without_a_name_is_refused(folder):
    with pytest.raises(CheckpointError, match="Is a directory"):
        write_checkpoint(folder, arrays(0), arrays(1), arrays(2), STATE)


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_checkpoint(tmp_path, monkeypatch, function):
    store = CheckpointStore(tmp_path, keep=2)
    store.open_for_writing()
    old = store.save(1, arrays(0), arrays(1), arrays(2), STATE)
    before = {p.name: p.read_bytes() for p in store.folder.iterdir()}
    monkeypatch.setattr(files.os, function, failing(1))
    with pytest.raises(CheckpointError, match="No space left on device; older checkpoints are intact"):
        store.save(2, arrays(3), arrays(4), arrays(5), STATE)
    monkeypatch.undo()
    assert {p.name: p.read_bytes() for p in store.folder.iterdir()} == before
    assert store.latest() == old
    read_checkpoint(old)


def test_a_full_disk_while_the_pointer_is_written(tmp_path, monkeypatch):
    store = CheckpointStore(tmp_path, keep=1)
    store.open_for_writing()
    old = store.save(1, arrays(0), arrays(1), arrays(2), STATE)
    monkeypatch.setattr(files.os, "fsync", failing(3))
    with pytest.raises(CheckpointError, match=r"latest cannot be written: No space left"):
        store.save(2, arrays(3), arrays(4), arrays(5), STATE)
    monkeypatch.undo()
    assert store.latest() == old
    read_checkpoint(old)
    read_checkpoint(store.path_of(2))


def test_a_real_limit_on_the_file_size(tmp_path):
    """The system refuses the bytes half way, as a full disk does."""
    write(tmp_path / "c.safetensors")
    before = (tmp_path / "c.safetensors").read_bytes()
    code = """if True:
        import resource, signal, sys
        from pathlib import Path
        from tests.runtime.test_checkpoint import write
        from trainc.core.errors import CheckpointError
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            write(Path(sys.argv[1]), seed=5)
        except CheckpointError as error:
            print(error)
    """
    command = [sys.executable, "-c", code, tmp_path / "c.safetensors"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    assert "cannot be written: File too large" in run.stdout
    assert (tmp_path / "c.safetensors").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["c.safetensors"]
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 1000


def test_leftovers_of_killed_saves_are_cleared(tmp_path):
    store = CheckpointStore(tmp_path)
    store.open_for_writing()
    kept = store.save(1, arrays(0), arrays(1), arrays(2), STATE)
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    dead, mine, alive = int(gone.stdout), os.getpid(), os.getppid()
    for pid in (dead, mine, alive):
        (store.folder / f".step-00000002.safetensors.{pid}-0123abcd.tmp").write_bytes(b"part")
    (store.folder / "notes.tmp").write_text("the user's own")
    assert store.latest() == kept
    store.open_for_writing()
    names = {p.name for p in store.folder.iterdir()}
    assert names == {"latest", kept.name, "notes.tmp", f".step-00000002.safetensors.{alive}-0123abcd.tmp"}


def test_the_last_few_are_kept(tmp_path):
    store = CheckpointStore(tmp_path, keep=3)
    store.open_for_writing()
    for step in (5, 1, 12, 30, 100_000_000):
        store.save(step, arrays(0), arrays(1), arrays(2), STATE)
    names = sorted(p.name for p in store.folder.glob("step-*"))
    assert names == ["step-00000012.safetensors", "step-00000030.safetensors", "step-100000000.safetensors"]
    with pytest.raises(CheckpointError, match="at least 1"):
        CheckpointStore(tmp_path, keep=0)


def test_what_latest_means(tmp_path):
    store = CheckpointStore(tmp_path)
    assert store.latest() is None
    with pytest.raises(CheckpointError, match="holds no checkpoint"):
        find_checkpoint(tmp_path)
    store.open_for_writing()
    assert store.latest() is None
    one, two = (store.save(step, arrays(0), arrays(1), arrays(2), STATE) for step in (1, 2))
    assert find_checkpoint(tmp_path) == find_checkpoint(store.folder) == find_checkpoint(two) == two
    (store.folder / "latest").write_text(f"{one.name}\n")
    assert store.latest() == one
    (store.folder / "latest").unlink()
    assert store.latest() == two
    for text in ("step-00000009.safetensors\n", "../../etc/passwd\n", ""):
        (store.folder / "latest").write_text(text)
        with pytest.raises(CheckpointError, match="which is not there"):
            store.latest()
