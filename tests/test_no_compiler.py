"""An artifact needs no compiler: proven in an environment that has none."""

import json
import os
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.slow

# The environments must not see the checkout itself.
CLEAN = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def checked(*command: object, **options) -> subprocess.CompletedProcess[str]:
    words = [str(part) for part in command]
    run = subprocess.run(words, capture_output=True, text=True, timeout=900, env=CLEAN, **options)
    assert run.returncode == 0, f"{command}\n{run.stdout}\n{run.stderr}"
    return run


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> Path:
    """The `bin` folder of an environment with the wheel and its runtime requirements, without iree-base-compiler."""
    home = tmp_path_factory.mktemp("bare")
    checked(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", home, ROOT)
    (wheel,) = home.glob("trainc-*.whl")
    venv.create(home / "venv", with_pip=True)
    pip = [home / "venv/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = [line for line in project["dependencies"] if not line.startswith("iree-base-compiler")]
    assert len(needed) == len(project["dependencies"]) - 1
    checked(*pip, *needed)
    checked(*pip, "--no-deps", wheel)
    return home / "venv/bin"


@pytest.fixture(scope="module")
def artifact(tmp_path_factory) -> Path:
    """examples/samba_tiny.toml, compiled by this environment, which has the compiler."""
    out = tmp_path_factory.mktemp("artifact") / "tiny.trainc"
    config = ROOT / "examples/samba_tiny.toml"
    checked(sys.executable, "-m", "trainc.cli", "compile", config, "-o", out, "--quiet", cwd=ROOT)
    return out


@pytest.fixture
def text(tmp_path) -> Path:
    path = tmp_path / "text.txt"
    path.write_bytes(bytes(range(256)) * 64)
    return path


def test_there_is_no_compiler(bare):
    code = "import iree.runtime, importlib.util as u; assert u.find_spec('iree.compiler') is None"
    checked(bare / "python", "-c", code)


def test_inspect(bare, artifact):
    shown = json.loads(checked(bare / "trainc", "inspect", artifact, "--json").stdout)
    assert shown["kind"] == "samba"


def test_run_eval_and_sample(bare, artifact, text, tmp_path):
    out = tmp_path / "run"
    checked(bare / "trainc", "run", artifact, "--data", text, "--steps", 3, "--out", out, "--quiet")
    weights = out / "checkpoints/step-00000003.safetensors"
    assert weights.is_file()
    loss = json.loads(checked(bare / "trainc", "eval", artifact, "--weights", weights, "--data", text, "--json").stdout)
    assert 0 < loss["loss"] < 10
    sampled = checked(
        bare / "trainc", "sample", artifact, "--weights", weights, "--prompt", "abc", "--max-tokens", 4, "--json"
    )
    assert len(json.loads(sampled.stdout)["samples"][0]["tokens"]) == 4


def test_bench(bare, artifact):
    shown = json.loads(checked(bare / "trainc", "bench", artifact, "--steps", 1, "--json").stdout)
    assert shown["decode"] is not None
    run = subprocess.run([bare / "trainc", "bench", artifact, "--profile"], capture_output=True, text=True, env=CLEAN)
    assert run.returncode == 3
    assert "iree-base-compiler" in run.stderr


@pytest.mark.parametrize("verb", [["compile", "examples/samba_tiny.toml", "-o", "x.trainc", "--quiet"], ["opt", "-"]])
def test_what_needs_a_compiler_says_so_by_name(bare, verb, tmp_path):
    verb = [str(ROOT / word) if word.startswith("examples/") else word for word in verb]
    run = subprocess.run(
        [bare / "trainc", *verb],
        input="",
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        env=CLEAN,
    )
    assert run.returncode == 3
    assert "iree-base-compiler" in run.stderr
    assert len(run.stderr.splitlines()) == 1
    assert not (tmp_path / "x.trainc").exists()
