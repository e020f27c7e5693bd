"""Running the program as a person does, and an artifact and a run to use it on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "examples/samba_tiny.toml"


class Cli:
    """Runs `trainc` in a process of its own, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {"PYTHONPATH": str(ROOT)}  # the checkout under test, wherever the program is started

    def __call__(self, *arguments: object, env: dict[str, str] | None = None, **options) -> subprocess.CompletedProcess:
        return subprocess.run(
            self.command(*arguments),
            stdin=subprocess.DEVNULL if "input" not in options else None,
            capture_output=True,
            cwd=self.folder,
            env=self.full_environment | (env or {}),
            timeout=300,
            **({"text": True} | options),
        )

    @property
    def full_environment(self) -> dict[str, str]:
        return os.environ | self.environment

    def command(self, *arguments: object) -> list[str]:
        return [sys.executable, "-m", "trainc.cli", *map(str, arguments)]

    def ok(self, *arguments: object, **options) -> subprocess.CompletedProcess:
        run = self(*arguments, **options)
        assert run.returncode == 0, f"{arguments}\n{run.stdout}\n{run.stderr}"
        return run

    def fails(self, code: int, *arguments: object, **options) -> str:
        """The one line of the error; nothing else may be printed."""
        run = self(*arguments, **options)
        assert run.returncode == code, f"{arguments}: {run.returncode}\n{run.stdout}\n{run.stderr}"
        assert run.stdout == ""
        (line,) = run.stderr.splitlines()
        return line


@pytest.fixture
def cli(tmp_path) -> Cli:
    return Cli(tmp_path)


@pytest.fixture(scope="session")
def artifact(tmp_path_factory) -> Path:
    """examples/samba_tiny.toml, compiled by the command line."""
    folder = tmp_path_factory.mktemp("artifact")
    Cli(folder).ok("compile", TINY, "-o", "tiny.trainc")
    return folder / "tiny.trainc"


@pytest.fixture(scope="session")
def text(tmp_path_factory) -> Path:
    """Data that a small model can learn something from: sources of this project."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_bytes(b"".join(source.read_bytes() for source in sorted((ROOT / "trainc/core").glob("*.py"))))
    return path


@pytest.fixture(scope="session")
def run(artifact, text, tmp_path_factory) -> Path:
    """A run of four steps with a checkpoint after every second."""
    folder = tmp_path_factory.mktemp("run")
    Cli(folder).ok("run", artifact, "--data", text, "--steps", 4, "--checkpoint-every", 2, "--out", "run")
    return folder / "run"
