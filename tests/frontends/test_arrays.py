import array

import numpy as np
import pytest

from trainc.core.errors import UsageError
from trainc.frontends.arrays import (
    float32_in_place,
    float32_input,
    int32_input,
    listed,
    require_separate,
    require_shape,
    view,
)


class WithDlpack:
    """What a tensor of another library looks like."""

    def __init__(self, values, device=1, error=None, sparse=False):
        self.values, self.device, self.error, self.is_sparse = values, device, error, sparse
        self.dtype = values.dtype

    def __dlpack_device__(self):
        return self.device, 0

    def __dlpack__(self, **options):
        if self.error is not None:
            raise self.error
        return self.values.__dlpack__(**options)


SOURCES = {
    "numpy": lambda: np.zeros(6, np.float32),
    "array.array": lambda: array.array("f", [0.0] * 6),
    "memoryview": lambda: memoryview(bytearray(24)).cast("f"),
    "dlpack": lambda: WithDlpack(np.zeros(6, np.float32)),
}


@pytest.mark.parametrize("source", SOURCES)
def test_writing_to_the_view_writes_to_the_memory(source):
    value = SOURCES[source]()
    first, second = float32_in_place("x", value), float32_input("x", value)
    first[3] = 7.0
    assert second.tolist() == [0, 0, 0, 7, 0, 0]
    assert first.shape == (6,)


def test_a_shape_is_kept():
    assert view("x", memoryview(bytearray(24)).cast("f", (2, 3))).shape == (2, 3)
    assert float32_in_place("x", np.zeros((), np.float32)).shape == ()


def test_an_array_whose_memory_is_in_use_cannot_be_resized():
    value = array.array("f", [1.0])
    kept = float32_in_place("x", value)
    with pytest.raises(BufferError):
        value.append(2.0)
    assert kept.tolist() == [1.0]


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (WithDlpack(np.zeros(3, np.float32), device=2), ValueError, "x must lie in the CPU's memory, got .* 2"),
        (WithDlpack(np.zeros(3, np.float32), error=BufferError("busy")), ValueError, "x does not give .* busy"),
        (WithDlpack(np.zeros(3, "V2"), error=RuntimeError("bfloat16")), TypeError, "x has elements of type"),
        (WithDlpack(np.zeros(3, np.float32), sparse=True), TypeError, "x must be dense"),
        (WithDlpack(np.zeros(3)), TypeError, "x must be a float32 array, got float64"),
        (np.zeros(3, ">f4"), TypeError, "got >f4"),
        (b"abcd", TypeError, "got uint8"),
        ([1.0], TypeError, "got list"),
        (None, TypeError, "got NoneType"),
        (3.0, TypeError, "got float"),
        (np.zeros(3, object), TypeError, "got object"),
    ],
)
def test_refusals(value, error, text):
    for take in (float32_in_place, float32_input):
        with pytest.raises(error, match=text):
            take("x", value)


def test_empty_arrays_where_they_are_allowed():
    assert float32_input("x", np.zeros((0, 4), np.float32), allow_empty=True).shape == (0, 4)
    assert int32_input("x", np.zeros(0, np.int64), allow_empty=True).dtype == np.int32
    with pytest.raises(ValueError, match="x must have at least one element"):
        int32_input("x", np.zeros(0, np.int64))


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "i4", "i8", "u8", ">i4"])
def test_integers_of_any_type_and_strides(dtype):
    values = np.arange(12, dtype=dtype).reshape(3, 4)[:, 1:]
    taken = int32_input("ids", values, low=1, high=12)
    assert taken.dtype == np.int32
    assert taken.flags.c_contiguous
    assert (taken == values).all()


def test_int32_is_not_copied():
    values = np.arange(4, dtype=np.int32)
    assert np.shares_memory(int32_input("ids", values), values)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (np.array([[1, 2], [3, 9]]), ValueError, r"ids\[1, 1\] must be at least 0 and below 9, got 9"),
        (np.array([5, -1]), ValueError, r"ids\[1\] .* got -1"),
        (np.array(2**40), ValueError, "ids must be at least 0 .* got 1099511627776"),
        (np.array([2**63], np.uint64), ValueError, r"ids\[0\]"),
        (np.array([1.0]), ValueError, "ids must hold integers, got float64"),
        (np.array([True]), ValueError, "ids must hold integers, got bool"),
        ([1, 2], TypeError, "got list"),
    ],
)
def test_integers_that_are_refused(value, error, text):
    with pytest.raises(error, match=text):
        int32_input("ids", value, low=0, high=9)


def test_masked_elements_are_refused():
    whole = np.ma.masked_array(np.ones(3, np.float32), mask=[False, False, False])
    assert view("x", whole).tolist() == [1.0, 1.0, 1.0]
    for masked in (np.ma.masked_array(np.ones(2, np.float32), [False, True]), np.ma.masked_equal([1, 2, 3], 2)):
        with pytest.raises(UsageError, match=r"^x must not have masked elements"):
            view("x", masked)
    with pytest.raises(UsageError, match=r"^ids must not have masked elements"):
        int32_input("ids", np.ma.masked_equal([1, 2, 3], 2))


def test_without_bounds_integers_must_fit_32_bits():
    assert int32_input("n", np.array([-(2**31), 2**31 - 1])).tolist() == [-(2**31), 2**31 - 1]
    with pytest.raises(ValueError, match=r"n\[0\]"):
        int32_input("n", np.array([2**31]))


def test_shapes():
    x = np.zeros((2, 3))
    require_shape("x", x, (None, 3), "(N, V)")
    for shape in ((2,), (2, 4), (2, 3, 1)):
        with pytest.raises(ValueError, match=r"x must have shape \(N, V\) = .*, got \(2, 3\)"):
            require_shape("x", x, shape, "(N, V)")


def test_listed():
    one = np.zeros(3)
    assert listed("x", one) == (["x"], [one])
    for several in ([one, one], (one, one), iter([one, one])):
        assert listed("x", several) == (["x[0]", "x[1]"], [one, one])
    with pytest.raises(TypeError, match="parameter groups"):
        listed("x", [{}])


def test_memory_that_is_shared_is_found_however_it_lies():
    flat = np.zeros(64, np.float32)
    require_separate(["a", "b", "c"], [flat[32:], flat[:16], flat[16:32]])
    with pytest.raises(ValueError, match="a and c share memory"):
        require_separate(["a", "b", "c"], [flat, np.zeros(3, np.float32), flat[40:41]])
    with pytest.raises(ValueError, match="a and b share memory"):
        require_separate(["a", "b"], [flat[10:], flat[:11]])
