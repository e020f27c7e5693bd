"""Fixtures every test may use."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Any]:
    """Reads a file of expected values, tests/golden/NAME.json."""
    return lambda name: json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
