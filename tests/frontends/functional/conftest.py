"""Golden values of the functions, and their inputs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest


@pytest.fixture(scope="session")
def ops(golden: Callable[[str], Any]) -> Callable[..., Any]:
    """Reads golden values by path: an array where float32 bits are stored, else what is stored."""

    def read(*path: str) -> Any:
        value = golden("ops")
        for key in path:
            value = value[key]
        if isinstance(value, dict) and "f32_hex" in value:
            bits = np.array([int(text, 16) for text in value["f32_hex"]], np.uint32)
            return bits.view(np.float32).reshape(value["shape"])
        return value

    return read
