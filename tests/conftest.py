"""Fixtures every test may use."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainc.runtime.device import Device, open_device
from trainc.runtime.discovery import discover_family

GOLDEN = Path(__file__).parent / "golden"


# Mesa's software device translates kernels without optimising them: tests run each only a few times.
os.environ.setdefault("GALLIVM_PERF", "nopt")


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Any]:
    """Reads a file of expected values, tests/golden/NAME.json."""
    return lambda name: json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def vulkan() -> Device:
    """Vulkan's device in software, the one that any machine can have: Mesa's llvmpipe.

    Without it a test is skipped and says so, but in continuous integration it fails.
    """
    found = discover_family("vulkan")
    for info in found:
        if info.software:
            return open_device(info.name)
    why = f"Vulkan has no device in software: {found[0].reason or ', '.join(map(str, found))}"
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)
