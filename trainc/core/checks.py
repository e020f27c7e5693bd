"""Checks of single settings, shared by every configuration: each message starts with the setting's name."""

import math
import operator
from typing import Any

import numpy as np

from trainc.core.errors import ConfigError

_FLOAT32_MAX = float(np.finfo(np.float32).max)


def integer(name: str, value: Any, least: int) -> int:
    """Returns `value` as an int of at least `least`; NumPy integers are welcome, booleans and floats are not.

    Raises:
        ConfigError: `value` is not such an integer.
    """
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise ConfigError(f"{name} must be an integer of at least {least}, got {value!r}") from None
    if number < least:
        raise ConfigError(f"{name} must be an integer of at least {least}, got {number}")
    return number


def divisor(name: str, value: Any) -> int:
    """Returns `value` as an int from 1 to 2**63 - 1: something to divide by that fits every float format.

    Raises:
        ConfigError: `value` is not such an integer.
    """
    number = integer(name, value, 1)
    if number >= 2**63:
        raise ConfigError(f"{name} must be below 2**63, got {number}")
    return number


def flag(name: str, value: Any) -> bool:
    """Returns `value` as a bool.

    Raises:
        ConfigError: `value` is not a boolean.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise ConfigError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def float32_at_least_0(name: str, value: Any) -> float:
    """Returns `value` rounded to float32; it must be finite and not negative.

    Raises:
        ConfigError: `value` is not such a number.
    """
    return _float32(name, value, "a finite number of at least 0", math.inf)


def float32_above_0(name: str, value: Any) -> float:
    """Returns `value` rounded to float32; it must be finite and still above zero.

    Raises:
        ConfigError: `value` is not such a number.
    """
    rounded = _float32(name, value, "a finite number above 0", math.inf)
    if rounded == 0.0:
        raise ConfigError(f"{name} must be a finite number above 0 as a float32, got {value!r}")
    return rounded


def float32_below_1(name: str, value: Any) -> float:
    """Returns `value` rounded to float32; it must lie in [0, 1).

    Raises:
        ConfigError: `value` is not such a number.
    """
    return _float32(name, value, "a number in [0, 1)", 1.0)


def _float32(name: str, value: Any, wanted: str, limit: float) -> float:
    try:
        if isinstance(value, (str, bytes, bool, np.bool_)):
            raise TypeError
        number = float(value)
    except (TypeError, OverflowError):
        raise ConfigError(f"{name} must be {wanted}, got {value!r}") from None
    rounded = float(np.float32(number)) if abs(number) <= _FLOAT32_MAX else math.inf
    if not (number >= 0.0 and rounded < limit):
        raise ConfigError(f"{name} must be {wanted} as a float32, got {value!r}")
    return rounded
