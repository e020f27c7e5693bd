"""Data: what is read, in which order, and how bad data is named."""

import itertools
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainc.core.errors import DataError
from trainc.runtime import data
from trainc.runtime.data import Batches, Corpus
from trainc.runtime.shuffle import shuffled


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "root"
    for name, content in {
        "b.txt": b"bbb",
        "a/z.txt": b"zz",
        "a/empty.txt": b"",
        "a-b.txt": b"-",
        "c.bin": b"\xff\xff",
        "a/deep/x.txt": b"xxxx",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def test_files_come_in_sorted_order_and_are_joined(folder):
    corpus = Corpus([folder], suffixes=[".txt"])
    assert bytes(corpus.read(0, corpus.size)) == b"-xxxxzzbbb"
    assert bytes(corpus.read(3, 5)) == b"xxzzb"
    assert Corpus([folder]).size == corpus.size + 2
    assert bytes(Corpus([folder / "c.bin", folder / "b.txt"], suffixes=[".txt"]).read(0, 5)) == b"\xff\xffbbb"


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
def test_links_to_directories_are_followed_only_where_they_are_named(folder, tmp_path):
    inside, circle, link = folder / "a/link", folder / "a/circle", tmp_path / "link"
    inside.symlink_to(folder / "b.txt")
    circle.symlink_to(folder)
    link.symlink_to(folder / "a")
    assert [file.name for file in Corpus([link]).files] == ["x.txt", "link", "z.txt"]


@settings(deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.data())
def test_any_range_is_that_of_the_joined_bytes(tmp_path_factory, sizes, draw):
    root = tmp_path_factory.mktemp("c")
    joined = b""
    for number, size in enumerate(sizes):
        part = bytes((number * 16 + i) % 256 for i in range(size))
        (root / f"{number}").write_bytes(part)
        joined += part
    if not joined:
        return
    corpus = Corpus([root])
    start = draw.draw(st.integers(0, len(joined)))
    count = draw.draw(st.integers(0, len(joined) - start))
    assert bytes(corpus.read(start, count)) == joined[start : start + count]


def test_windows_share_one_byte(tmp_path):
    (tmp_path / "d").write_bytes(bytes(range(10)))
    windows = Corpus([tmp_path / "d"]).windows(3)
    assert len(windows) == 3
    np.testing.assert_array_equal(windows.read([0, 2]), [[0, 1, 2, 3], [6, 7, 8, 9]])


def test_split_keeps_the_last_windows_for_validation(tmp_path):
    (tmp_path / "d").write_bytes(bytes(range(41)))
    train, validation = Corpus([tmp_path / "d"]).windows(4).split(0.2)
    assert (len(train), len(validation)) == (8, 2)
    np.testing.assert_array_equal(validation.read([0])[0], [32, 33, 34, 35, 36])
    small = Corpus([tmp_path / "d"]).windows(20)
    assert [len(part) for part in small.split(0.01)] == [1, 1]
    assert [len(part) for part in small.split(0.99)] == [1, 1]
    for fraction in (0.0, 1.0, float("nan")):
        with pytest.raises(DataError, match="fraction"):
            small.split(fraction)
    with pytest.raises(DataError, match="1 window"):
        Corpus([tmp_path / "d"]).windows(40).split(0.5)


def test_missing_and_empty_data_are_named(tmp_path):
    with pytest.raises(DataError, match="nothere does not exist"):
        Corpus([tmp_path / "nothere"])
    (tmp_path / "empty.txt").write_bytes(b"")
    with pytest.raises(DataError, match=r"no data in .*empty\.txt"):
        Corpus([tmp_path / "empty.txt"])
    with pytest.raises(DataError, match=r"expected files ending in \.rs"):
        Corpus([tmp_path], suffixes=[".rs"])
    with pytest.raises(DataError, match="no path"):
        Corpus([])


def test_a_file_that_may_not_be_read_is_refused_at_once(tmp_path, monkeypatch):
    for name in "abc":
        (tmp_path / name).write_bytes(b"text")
    monkeypatch.setattr(data.os, "access", lambda file, mode: file.name != "b")  # root may read everything
    with pytest.raises(DataError, match=r"/b cannot be read: Permission denied"):
        Corpus([tmp_path])


def test_data_shorter_than_a_window(tmp_path):
    (tmp_path / "short").write_bytes(b"12345678")
    with pytest.raises(DataError, match=r"has 8 bytes \(.*short.*needs 9"):
        Corpus([tmp_path / "short"]).windows(8)


def test_a_byte_outside_the_vocabulary_is_placed(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "_SCAN_BYTES", 16)
    (tmp_path / "a").write_bytes(b"\x01" * 50)
    (tmp_path / "b").write_bytes(b"\x01" * 37 + b"\x40" + b"\x01" * 5)
    with pytest.raises(DataError, match=r"/b has byte 64 at offset 37, outside the vocabulary of 64"):
        Corpus([tmp_path], vocab=64)
    assert Corpus([tmp_path], vocab=65).size == 93


def test_a_file_that_shrinks_is_noticed(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 100)
    corpus = Corpus([tmp_path / "a"])
    os.truncate(tmp_path / "a", 10)
    with pytest.raises(DataError, match="became shorter"):
        corpus.read(0, 100)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 16, 17, 63, 64, 65, 1000, 4097])
def test_an_epoch_takes_everything_once(count):
    order = shuffled(np.arange(count), count, seed=5, epoch=3)
    assert sorted(order.tolist()) == list(range(count))


@settings(deadline=None)
@given(st.integers(1, 10**12), st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.data())
def test_a_place_does_not_depend_on_its_neighbours(count, seed, epoch, draw):
    places = draw.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=5))
    together = shuffled(places, count, seed, epoch)
    assert [int(shuffled([place], count, seed, epoch)[0]) for place in places] == together.tolist()
    assert all(0 <= value < count for value in together.tolist())


def test_the_order_is_shuffled_and_differs_by_seed_and_epoch():
    orders = [shuffled(np.arange(1000), 1000, seed, epoch).tolist() for seed in (0, 1) for epoch in (0, 1)]
    for i, one in enumerate(orders):
        assert abs(np.corrcoef(one, np.arange(1000))[0, 1]) < 0.12  # 4 standard deviations of a random order
        assert sum(a + 1 == b for a, b in itertools.pairwise(one)) < 10
        for other in orders[i + 1 :]:
            assert sum(a == b for a, b in zip(one, other, strict=True)) < 10


def test_the_order_stays_what_it_is():
    """A checkpoint's position means something only as long as this order does."""
    assert shuffled(np.arange(8), 100, seed=1, epoch=0).tolist() == [45, 14, 50, 78, 31, 77, 2, 61]


def test_batches_go_on_from_any_position(tmp_path):
    (tmp_path / "d").write_bytes(bytes(range(101)))
    windows = Corpus([tmp_path / "d"]).windows(10)
    unbroken = Batches(windows, seed=4)
    rows = [unbroken.next(4) for _ in range(10)]
    assert (unbroken.epoch, unbroken.position) == (4, 0)
    for done in range(10):
        first = Batches(windows, seed=4)
        for _ in range(done):
            first.next(4)
        again = Batches(windows, seed=4)
        again.restore(first.state())
        for expected in rows[done:]:
            np.testing.assert_array_equal(again.next(4), expected)


def test_a_batch_larger_than_the_data_goes_round(tmp_path):
    (tmp_path / "d").write_bytes(bytes(range(21)))
    batches = Batches(Corpus([tmp_path / "d"]).windows(10), seed=0)
    assert batches.next(5).shape == (5, 11)
    assert (batches.epoch, batches.position) == (2, 1)


def test_a_position_in_other_data_is_refused(tmp_path):
    (tmp_path / "d").write_bytes(bytes(range(101)))
    windows = Corpus([tmp_path / "d"]).windows(10)
    state = Batches(windows, seed=4).state()
    with pytest.raises(DataError, match="seed was 4, now it is 5"):
        Batches(windows, seed=5).restore(state)
    (tmp_path / "e").write_bytes(b"x" * 101)
    with pytest.raises(DataError, match="windows was 10, now it is 20"):
        Batches(Corpus([tmp_path / "d", tmp_path / "e"]).windows(10), seed=4).restore(state)
