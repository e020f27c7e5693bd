"""State tables: layout, views and what is refused."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainc.core.errors import ArtifactError, DtypeError, ShapeError
from trainc.core.state_table import ALIGNMENT, StateTable

TABLE = StateTable.build("params", [("a", (3, 5)), ("b", ()), ("c", (64,)), ("d", (2,), "i32")])


def test_every_tensor_starts_on_a_boundary():
    assert [(t.name, t.offset, t.size) for t in TABLE.tensors] == [
        ("a", 0, 15),
        ("b", 64, 1),
        ("c", 128, 64),
        ("d", 192, 2),
    ]
    assert TABLE.size == 256
    assert TABLE["c"].shape == (64,)
    with pytest.raises(KeyError, match="no tensor 'x'"):
        TABLE["x"]


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(1, 9), max_size=3), max_size=8))
def test_tensors_do_not_overlap(shapes):
    table = StateTable.build("t", [(str(i), shape) for i, shape in enumerate(shapes)])
    end = 0
    for tensor in table.tensors:
        assert tensor.offset % ALIGNMENT == 0
        assert end <= tensor.offset < end + ALIGNMENT
        end = tensor.offset + tensor.size
    assert table.size % ALIGNMENT == 0
    assert 0 <= table.size - end < ALIGNMENT
    assert StateTable.from_json("t", json.loads(json.dumps(table.to_json()))) == table


def test_views_and_packing():
    arrays = {
        "a": np.arange(15, dtype=np.float32).reshape(3, 5),
        "b": np.float32(7),
        "c": np.ones(64, np.float32),
        "d": np.array([-1, 2], np.int32),
    }
    flat = TABLE.pack(arrays)
    views = TABLE.views(flat)
    for name, array in arrays.items():
        np.testing.assert_array_equal(views[name], array)
        assert np.shares_memory(views[name], flat)
    assert flat[15:64].any() == flat[65:128].any() == False  # noqa: E712
    views["b"][...] = 9
    assert flat[64] == 9


def test_what_cannot_be_packed():
    good = {t.name: np.zeros(t.shape, t.numpy_dtype) for t in TABLE.tensors}
    flat = np.full(TABLE.size, 5, np.float32)
    for change, error, text in (
        ({"a": np.zeros((5, 3), np.float32)}, ShapeError, r"'a' has shape \(3, 5\), got \(5, 3\)"),
        ({"a": np.zeros((3, 5))}, DtypeError, "'a' is float32, got float64"),
        ({"x": np.zeros(1)}, ShapeError, r"unknown: \['x'\]"),
    ):
        with pytest.raises(error, match=text):
            TABLE.write(flat, good | change)
    del good["b"]
    with pytest.raises(ShapeError, match=r"missing: \['b'\]"):
        TABLE.write(flat, good)
    assert (flat == 5).all()


@pytest.mark.parametrize(
    "flat", [np.zeros(255, np.float32), np.zeros(256), np.zeros(512, np.float32)[::2], [0.0] * 256]
)
def test_flat_must_be_one_contiguous_array(flat):
    with pytest.raises(ShapeError, match="contiguous float32 array of 256 elements"):
        TABLE.views(flat)


@pytest.mark.parametrize(
    ("tensors", "error", "text"),
    [
        ([("a", (1,)), ("a", (2,))], ShapeError, "comes twice"),
        ([("a", (1, 0))], ShapeError, "at least 1"),
        ([("a", (1,), "f64")], DtypeError, "f64"),
    ],
)
def test_impossible_tables(tensors, error, text):
    with pytest.raises(error, match=text):
        StateTable.build("t", tensors)


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (lambda v: v.update(size=100), "size must be 256, got 100"),
        (lambda v: v["tensors"][1].update(offset=15), "'b' must have offset 64, got 15"),
        (lambda v: v["tensors"][0].update(size=14), "'a' must have size 15"),
        (lambda v: v["tensors"][0].pop("shape"), "needs 'name', 'shape'"),
        (lambda v: v["tensors"][0].update(shape="ab"), "needs 'name', 'shape'"),
        (lambda v: v.pop("tensors"), "expected an object"),
    ],
)
def test_a_damaged_table_is_refused(edit, text):
    value = TABLE.to_json()
    edit(value)
    with pytest.raises(ArtifactError, match=text):
        StateTable.from_json("params", value)
