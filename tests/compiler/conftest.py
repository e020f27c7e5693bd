"""Fixtures of the compiler tests: a private cache folder, and fake compilers."""

from collections.abc import Callable
from pathlib import Path

import pytest

from trainc.compiler import cache, iree


@pytest.fixture
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of this test's own, with nothing warned about yet."""
    folder = tmp_path / "cache"
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(folder))
    monkeypatch.setattr(cache, "_warned_folders", set())
    return folder


@pytest.fixture
def fake_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Puts a shell script in the place of iree-compile."""

    def install(script: str) -> Path:
        path = tmp_path / "iree-compile"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr(iree, "iree_compile_path", lambda: path)
        return path

    return install
