"""Checks of arguments that several functions share; every message starts with the argument's name."""

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from trainc.core.errors import ArgumentTypeError, NotFiniteError, ShapeError, UsageError
from trainc.frontends.arrays import Float32, float32_input

_PIECE = 2**20


def refuse_unknown(function: str, kwargs: Mapping[str, Any]) -> None:
    """Raise ArgumentTypeError if a function was given a keyword that it does not have."""
    for name in kwargs:
        raise ArgumentTypeError(f"{function} has no argument {name!r}; leave it out")


def any_integer(name: str, value: Any) -> int:
    """Return an integer of any size.

    Raises:
        UsageError: It is none.
    """
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise UsageError(f"{name} must be an integer, got {value!r}") from None


def matrix(name: str, value: Any, form: str, *, columns: int | None = None) -> Float32:
    """Return a float32 array of two dimensions.

    Args:
        name: The argument's name.
        value: The argument.
        form: How the documentation writes its shape, such as "(N, V)".
        columns: Size of its last dimension; None is any.

    Raises:
        DtypeError: It is no array of float32.
        ShapeError: It has other dimensions, is empty or is not C-contiguous.
    """
    array = float32_input(name, value)
    if array.ndim != 2 or columns not in (None, array.shape[1]):
        wanted = form if columns is None else f"{form} with {columns} columns"
        raise ShapeError(f"{name} must have shape {wanted}, got {array.shape}")
    return array


def rows(name: str, value: Any, form: str) -> Float32:
    """Return a float32 array of two or more dimensions; all but the last count rows.

    Args:
        name: The argument's name.
        value: The argument.
        form: How the documentation writes its shape, such as "(..., D)".

    Raises:
        DtypeError: It is no array of float32.
        ShapeError: It has fewer dimensions, is empty or is not C-contiguous.
    """
    array = float32_input(name, value)
    if array.ndim < 2:
        raise ShapeError(f"{name} must have shape {form} of two dimensions or more, got {array.shape}")
    return array


def require_finite(name: str, array: Float32) -> None:
    """Raise NotFiniteError if an array holds an infinity or a NaN; takes little memory, however large it is."""
    flat = array.reshape(-1)
    for start in range(0, flat.size, _PIECE):
        finite = np.isfinite(flat[start : start + _PIECE])
        if not finite.all():
            position = start + int(np.argmin(finite))
            place = ", ".join(map(str, np.unravel_index(position, array.shape)))
            raise NotFiniteError(f"{name} must be finite, but {name}[{place}] is {flat[position]}")
