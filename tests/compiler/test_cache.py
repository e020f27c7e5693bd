"""The compile cache: hits, damage, folders that cannot be written, eviction, writers at the same time."""

import logging
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainc.compiler import cache
from trainc.compiler.cache import CacheWarning, CompileCache, cache_folder, content_key, key_parts

PARTS = [("program", "module {}"), ("flags", "-a\n-b")]
KEY = content_key(PARTS)


def refuse():
    raise AssertionError("the cache should have had it")


def entry(folder, key=KEY):
    return folder / "entries" / key


def test_the_variable_overrides_the_platform_folder(monkeypatch, tmp_path):
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.setenv(cache.FOLDER_VARIABLE, "")
    assert cache_folder().name == "trainc"


def test_made_once_then_read(cache_dir):
    assert CompileCache().get_or_make(PARTS, lambda: b"blob") == b"blob"
    assert CompileCache().get_or_make(PARTS, refuse) == b"blob"
    assert CompileCache().get_or_make([*PARTS, ("more", "")], lambda: b"other") == b"other"


def test_a_failure_stores_nothing(cache_dir):
    with pytest.raises(AssertionError):
        CompileCache().get_or_make(PARTS, refuse)
    assert CompileCache().info().entries == 0


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(), st.text()), max_size=4), st.lists(st.tuples(st.text(), st.text()), max_size=4))
def test_different_parts_have_different_keys(one, other):
    assert (content_key(one) == content_key(other)) == (one == other)


def test_parts_cannot_run_together():
    assert content_key([("a", "bc")]) != content_key([("ab", "c")])
    assert content_key([("a", "b"), ("c", "d")]) != content_key([("c", "d"), ("a", "b")])


def test_every_part_changes_the_key():
    base = {"program": "p", "flags": ["-a", "-b"], "compiler": "1", "pipeline": ["x"], "host": "h"}
    changed = [base, base | {"program": "q"}, base | {"flags": ["-b", "-a"]}, base | {"compiler": "2"}]
    changed += [base | {"pipeline": ["x", "y"]}, base | {"host": ""}, base | {"flags": ["-a"]}]
    assert len({content_key(key_parts(**parts)) for parts in changed}) == len(changed)


def test_the_digest_of_each_part_is_logged(caplog):
    with caplog.at_level(logging.DEBUG, logger="trainc.compiler.cache"):
        content_key(PARTS)
    assert [record.message.split()[3] for record in caplog.records[:2]] == ["program:", "flags:"]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "foreign", "swapped"])
def test_a_damaged_entry_is_made_again_with_a_warning(cache_dir, damage):
    store = CompileCache()
    store.get_or_make(PARTS, lambda: b"blob" * 100)
    path = entry(cache_dir)
    data = path.read_bytes()
    if damage == "swapped":  # a whole entry under another's name
        store.put(content_key([]), b"other")
        data = entry(cache_dir, content_key([])).read_bytes()
    damaged = {
        "cut": data[:-1],
        "flip": data[:-1] + bytes([data[-1] ^ 1]),
        "empty": b"",
        "foreign": b"something else entirely" * 9,
        "swapped": data,
    }
    path.write_bytes(damaged[damage])
    with pytest.warns(CacheWarning, match="damaged"):
        assert store.get_or_make(PARTS, lambda: b"again") == b"again"
    assert store.get_or_make(PARTS, refuse) == b"again"


def test_an_unwritable_folder_is_warned_about_once(tmp_path, monkeypatch, cache_dir):
    file = tmp_path / "file"
    file.write_text("mine")
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(file))
    with pytest.warns(CacheWarning, match=cache.FOLDER_VARIABLE) as warned:
        assert CompileCache().get_or_make(PARTS, lambda: b"one") == b"one"
    assert len(warned) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert CompileCache().get_or_make(PARTS, lambda: b"two") == b"two"
    assert file.read_text() == "mine"
    assert CompileCache().info().entries == 0


def test_a_full_disk_costs_only_the_entry(cache_dir, monkeypatch):
    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "atomic_write", full)
    with pytest.warns(CacheWarning, match="No space left"):
        assert CompileCache().get_or_make(PARTS, lambda: b"blob") == b"blob"


def test_the_least_recently_used_goes_first(cache_dir):
    store = CompileCache(limit_bytes=3500)
    keys = [content_key([("n", str(n))]) for n in range(4)]
    for age, key in enumerate(keys[:3]):
        store.put(key, bytes(1000))
        os.utime(entry(cache_dir, key), (1000 + age, 1000 + age))
    assert store.get(keys[0]) == bytes(1000)
    store.put(keys[3], bytes(1000))
    assert [store.get(key) is not None for key in keys] == [True, False, True, True]
    assert store.info().size_bytes <= 3500


def test_a_blob_above_the_limit_is_not_kept(cache_dir):
    store = CompileCache(limit_bytes=100)
    store.put(content_key([]), b"small")
    assert store.get_or_make(PARTS, lambda: bytes(200)) == bytes(200)
    assert store.info().entries == 1


def test_failed_programs_count_and_are_evicted(cache_dir):
    store = CompileCache(limit_bytes=300)
    old = store.keep_failed_input("x" * 200)
    os.utime(old, (1000, 1000))
    assert store.info().failed_inputs == 1
    assert store.keep_failed_input("y" * 200).read_text() == "y" * 200
    assert not old.exists()


def test_info_and_clear_touch_only_their_own_files(cache_dir):
    store = CompileCache()
    store.put(KEY, b"blob")
    store.keep_failed_input("module {}")
    mine = [cache_dir / "mine.txt", cache_dir / "entries" / "mine.txt", cache_dir / "failed" / "mine.txt"]
    for path in mine:
        path.write_text("keep")
    (cache_dir / "entries" / ".abc.1-00000000.tmp").write_text("left by a killed process")
    info = store.info()
    assert (info.folder, info.entries, info.failed_inputs) == (cache_dir, 1, 1)
    assert store.clear() == info
    assert sorted(path for path in cache_dir.rglob("*") if path.is_file()) == sorted(mine)
    for path in mine:
        path.unlink()
    store.clear()
    assert not list(cache_dir.iterdir())


def test_old_temporaries_go_and_fresh_ones_stay(cache_dir):
    store = CompileCache()
    store.put(KEY, b"blob")
    old, fresh = (cache_dir / "entries" / f".abc.{n}-00000000.tmp" for n in (1, 2))
    for path in (old, fresh):
        path.write_bytes(b"part")
    os.utime(old, (time.time() - 7200,) * 2)
    store.put(content_key([]), b"blob")
    assert not old.exists()
    assert fresh.exists()


WRITER = """
import sys, warnings
warnings.simplefilter("error")
from trainc.compiler.cache import CompileCache, content_key
store = CompileCache(limit_bytes=60_000)
print("ready", flush=True)
sys.stdin.readline()
for n in range(150):
    key = content_key([("n", str(n % 7))])
    blob = bytes([n % 7]) * 10_000
    found = store.get(key)
    assert found in (None, blob), n
    if found is None or n % 3 == 0:
        store.put(key, blob)
    if n % 50 == 49:
        store.info()
"""


def test_two_processes_write_and_evict_at_once(cache_dir):
    root = Path(__file__).resolve().parents[2]
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=root,
        )
        for _ in range(2)
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        _, errors = writer.communicate(timeout=120)
        assert writer.returncode == 0, errors
    assert CompileCache().info().size_bytes <= 60_000
    assert not list(cache_dir.rglob("*.tmp"))


def _kernel(cache, name, size=10, used=None):
    folder = cache.folder / "kernels" / f"{name}-{'0' * 32}.trainc" / "modules"
    folder.mkdir(parents=True)
    (folder / "a.vmfb").write_bytes(b"x" * size)
    if used is not None:
        os.utime(folder.parent, (used, used))
    return folder.parent


def test_kernels_are_counted_and_cleared(tmp_path):
    cache = CompileCache(tmp_path / "cache")
    kernel = _kernel(cache, "adamw", size=7)
    other = cache.folder / "kernels" / "notes"
    other.mkdir()
    info = cache.info()
    assert (info.kernels, info.entries, info.size_bytes) == (1, 0, 7)
    assert cache.clear() == info
    assert not kernel.exists()
    assert other.exists()


def test_the_least_recently_used_kernels_go_first(tmp_path):
    cache = CompileCache(tmp_path / "cache", limit_bytes=1000)
    old, new = _kernel(cache, "old", 600, used=1.0), _kernel(cache, "new", 600)
    cache.put("0" * 64, b"small")
    assert not old.exists()
    assert new.exists()
