"""Comparisons with torch are collected only when they are asked for; then a missing torch is an error."""

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave this folder out where the marker expression excludes its tests."""
    return True if "not oracle" in config.getoption("markexpr") else None
