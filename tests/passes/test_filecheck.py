"""Every pass against a program before and after: tests/passes/filecheck/NAME.mlir."""

import subprocess
import sys
from pathlib import Path

import pytest

from trainc.passes.pipelines import PASSES, run_text

CASES = sorted((Path(__file__).parent / "filecheck").glob("*.mlir"))


def _passes(text: str) -> list[str]:
    first = text.splitlines()[0]
    assert first.startswith("// PASS: "), "the first line names the passes"
    return first.removeprefix("// PASS: ").split(",")


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_filecheck(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    after = run_text(text, _passes(text))
    found = subprocess.run(
        [sys.executable, "-m", "filecheck", str(path)], input=after, text=True, capture_output=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr + after


def test_every_pass_has_a_case() -> None:
    tested = {name for path in CASES for name in _passes(path.read_text(encoding="utf-8"))}
    assert set(PASSES) - {"require-lowered"} == tested
