"""Element types: the short names used in programs, manifests and configs, and their NumPy forms."""

from typing import Any

import numpy as np

from trainc.core.errors import DtypeError

# NumPy has no bfloat16: on the host its elements are carried as their 16-bit patterns.
_NUMPY: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "i1": np.dtype(np.bool_),
    "bf16": np.dtype(np.uint16),
}
_NAMES = {dtype: name for name, dtype in _NUMPY.items()}

DTYPE_NAMES: tuple[str, ...] = tuple(_NUMPY)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Returns the NumPy dtype that carries elements of type `name` on the host.

    Raises:
        DtypeError: `name` is not one of `DTYPE_NAMES`.
    """
    try:
        return _NUMPY[name]
    except KeyError:
        raise DtypeError(f"unknown element type {name!r}; known types: {', '.join(DTYPE_NAMES)}") from None


def dtype_name(dtype: Any) -> str:
    """Returns the short name of a NumPy dtype (or of anything `numpy.dtype` accepts).

    Raises:
        DtypeError: `dtype` has no counterpart in a program.
    """
    wanted = np.dtype(dtype)
    try:
        return _NAMES[wanted]
    except KeyError:
        known = ", ".join(f"{name} ({carrier})" for name, carrier in _NUMPY.items())
        raise DtypeError(f"NumPy dtype {wanted} has no element type here; convert to one of: {known}") from None


def itemsize_bytes(name: str) -> int:
    """Returns the size of one element of type `name` in bytes, as stored on the host.

    Raises:
        DtypeError: `name` is not one of `DTYPE_NAMES`.
    """
    return numpy_dtype(name).itemsize
