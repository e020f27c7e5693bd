"""Fixtures every test may use."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainc.core.errors import DeviceError
from trainc.runtime.device import Device, open_device

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Any]:
    """Reads a file of expected values, tests/golden/NAME.json."""
    return lambda name: json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def vulkan() -> Device:
    """A Vulkan device. Without one a test is skipped and says so, but in continuous integration it fails."""
    try:
        return open_device("vulkan")
    except DeviceError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))
