"""What callers pass as arrays, taken as NumPy views of their memory.

An array is anything that gives its memory away without a copy: a NumPy array, `array.array`, `memoryview`, any other
object with the buffer protocol, or one with DLPack on the CPU (a torch or JAX tensor). Nothing is converted behind the
caller's back: another element type is a `DtypeError` (a TypeError), memory that cannot be used a ValueError. Every
message starts with the argument's name.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.errors import ArgumentTypeError, DtypeError, ShapeError, UsageError

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]

_DLPACK_CPU = 1
_INT32 = np.iinfo(np.int32)


def view(name: str, value: Any) -> npt.NDArray[Any]:
    """Returns an argument's memory as a NumPy array of its own dtype and shape, without a copy.

    Args:
        name: The argument's name, for messages.
        value: An array in the sense of this module.

    Raises:
        DtypeError: `value` is no array, or NumPy has no such element type.
        UsageError: `value` lies on an accelerator, does not give its memory away, or is a masked array with masked
            elements.
    """
    if isinstance(value, np.ndarray):
        if type(value) is not np.ndarray and np.ma.is_masked(value):
            raise UsageError(f"{name} must not have masked elements, which have no value here; fill or remove them")
        return np.asarray(value)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _from_dlpack(name, value)
    try:
        return np.asarray(memoryview(value))
    except (TypeError, ValueError, BufferError):
        raise DtypeError(
            f"{name} must be a NumPy array or another object with the buffer protocol or DLPack, got "
            f"{type(value).__name__}; numpy.asarray makes one of a list"
        ) from None


def listed(name: str, value: Any) -> tuple[list[str], list[Any]]:
    """Returns an argument that is one array or several as a list.

    Args:
        name: The argument's name.
        value: One array, or a list, a tuple or an iterator of arrays.

    Returns:
        What to call each item in messages, and the items as they came.

    Raises:
        ArgumentTypeError: It is, or holds, a dict: there are no parameter groups.
    """
    several = isinstance(value, (list, tuple, Iterator))
    items = list(value) if several else [value]
    if any(isinstance(item, Mapping) for item in items):
        raise ArgumentTypeError(f"{name} must be arrays, got a dict; parameter groups are not supported")
    return ([f"{name}[{i}]" for i in range(len(items))] if several else [name]), items


def float32_in_place(name: str, value: Any) -> Float32:
    """Returns an argument that is read and written in place.

    Args:
        name: The argument's name, for messages.
        value: float32 array of any shape: writable, C-contiguous, at least one element.

    Returns:
        A view of the same memory.

    Raises:
        DtypeError: `value` is no array of float32.
        UsageError: Its memory is read-only.
        ShapeError: It is empty or not C-contiguous.
    """
    array = float32_input(name, value)
    if not array.flags.writeable:
        raise UsageError(f"{name} is written in place and its memory is read-only; pass a writable array")
    return array


def float32_input(name: str, value: Any, *, allow_empty: bool = False) -> Float32:
    """Returns an argument that is only read.

    Args:
        name: The argument's name, for messages.
        value: float32 array of any shape: C-contiguous, at least one element.
        allow_empty: Take arrays without elements too.

    Returns:
        A view of the same memory.

    Raises:
        DtypeError: `value` is no array of float32.
        ShapeError: It is not C-contiguous, or is empty and must not be.
    """
    array = view(name, value)
    if array.dtype != np.float32:
        raise DtypeError(f"{name} must be a float32 array, got {array.dtype}; convert it with astype(numpy.float32)")
    if array.size == 0 and not allow_empty:
        raise ShapeError(f"{name} must have at least one element, got shape {array.shape}")
    if not array.flags.c_contiguous:
        raise ShapeError(
            f"{name} must be C-contiguous, got shape {array.shape} with strides {array.strides} bytes; pass a copy "
            "made by numpy.ascontiguousarray"
        )
    return array


def int32_input(
    name: str, value: Any, *, low: int | None = None, high: int | None = None, allow_empty: bool = False
) -> Int32:
    """Returns integers as int32: a view where they are int32 and C-contiguous, else a copy.

    Args:
        name: The argument's name, for messages.
        value: Array of any integer dtype, shape and strides.
        low: Smallest value allowed; None is the smallest int32.
        high: Values must be below it; None is one above the largest int32.
        allow_empty: Take arrays without elements too.

    Raises:
        DtypeError: `value` is no array.
        UsageError: Its elements are no integers (booleans are none), or one is out of range; the message names its
            position.
        ShapeError: It is empty and must not be.
    """
    array = view(name, value)
    if array.dtype.kind not in "iu":
        raise UsageError(f"{name} must hold integers, got {array.dtype}")
    if array.size == 0:
        if not allow_empty:
            raise ShapeError(f"{name} must have at least one element, got shape {array.shape}")
        return np.zeros(array.shape, np.int32)
    bottom = _INT32.min if low is None else low
    top = _INT32.max + 1 if high is None else high
    if int(array.min()) < bottom or int(array.max()) >= top:
        where = next(i for i in np.ndindex(array.shape) if not bottom <= int(array[i]) < top)
        place = f"[{', '.join(map(str, where))}]" if where else ""
        raise UsageError(f"{name}{place} must be at least {bottom} and below {top}, got {int(array[where])}")
    return np.asarray(array, np.int32, order="C")


def require_shape(name: str, array: npt.NDArray[Any], shape: Sequence[int | None], form: str) -> None:
    """Checks an argument's shape.

    Args:
        name: The argument's name, for messages.
        array: The argument.
        shape: The size of each dimension, None where any will do.
        form: How the documentation writes the shape, for messages: "(N, V)".

    Raises:
        ShapeError: The shape is another one.
    """
    fits = len(array.shape) == len(shape) and all(
        wanted in (None, size) for size, wanted in zip(array.shape, shape, strict=True)
    )
    if not fits:
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise ShapeError(f"{name} must have shape {form} = ({wanted}), got {array.shape}")


def require_not_negative(name: str, array: Float32) -> None:
    """Checks that the elements of second moments, which are means of squares, are at least 0; a NaN passes.

    Args:
        name: The argument's name, for messages.
        array: The argument.

    Raises:
        UsageError: An element is negative; the message names the first.
    """
    negative = array < 0
    if negative.any():
        place = np.unravel_index(int(negative.argmax()), array.shape)
        where = ", ".join(map(str, place))
        raise UsageError(f"{name} is a mean of squares and must be at least 0, but [{where}] is {array[place]}")


def require_separate(names: Sequence[str], arrays: Sequence[npt.NDArray[Any]]) -> None:
    """Checks that no two arrays share memory.

    Args:
        names: A name for each array, for messages.
        arrays: C-contiguous arrays that are not empty.

    Raises:
        UsageError: Two overlap; the message names both.
    """
    starts = [array.__array_interface__["data"][0] for array in arrays]
    order = sorted(range(len(arrays)), key=starts.__getitem__)
    for first, second in itertools.pairwise(order):
        if starts[first] + arrays[first].nbytes > starts[second]:
            earlier, later = sorted((first, second))
            raise UsageError(
                f"{names[earlier]} and {names[later]} share memory, which would be read and written in an undefined "
                "order; pass separate arrays"
            )


def _from_dlpack(name: str, value: Any) -> npt.NDArray[Any]:
    dtype = getattr(value, "dtype", None)
    if getattr(value, "is_sparse", False):
        raise DtypeError(f"{name} must be dense, got a sparse {type(value).__name__}")
    try:
        kind = int(value.__dlpack_device__()[0])
        if kind != _DLPACK_CPU:
            raise UsageError(f"{name} must lie in the CPU's memory, got DLPack device type {kind}; move it there first")
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        if "float32" in str(dtype) or "int" in str(dtype):
            raise UsageError(f"{name} does not give its memory away: {error}") from error
        raise DtypeError(f"{name} has elements of type {dtype}, which cannot be used here: {error}") from error
