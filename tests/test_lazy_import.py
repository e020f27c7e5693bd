"""What importing trainc must not load: nothing compiled before it is needed."""

import subprocess
import sys

import pytest

import trainc


def loaded_after(statements: str) -> set[str]:
    """The modules in a fresh interpreter after the given statements."""
    code = f"{statements}\nimport sys; print(*sorted(sys.modules), sep='\\n')"
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    return set(run.stdout.splitlines())


def roots(modules: set[str]) -> set[str]:
    return {module.split(".")[0] for module in modules}


def test_import_trainc_loads_nothing_heavy():
    assert roots(loaded_after("import trainc")).isdisjoint({"iree", "numpy", "safetensors", "lark", "rich", "typer"})


@pytest.mark.parametrize(
    "statements",
    [
        "from trainc import SambaConfig\nSambaConfig(256, 64, ('mamba3', 'attention'), n_heads=4, intermediate=128)",
        "from trainc import ConstantLR, WarmupLinearLR, WarmupCosineLR\nWarmupCosineLR(1e-3, 2, 10).lr_at(3)",
        "from trainc import Generator\nGenerator(7).uniform(8)",
    ],
)
def test_the_exports_load_no_iree(statements):
    assert "iree" not in roots(loaded_after(statements))


def test_the_command_line_loads_no_iree_and_no_numpy():
    code = "from trainc.cli.main import main\nassert main(['--version']) == 0"
    assert roots(loaded_after(code)).isdisjoint({"iree", "numpy", "safetensors"})


def test_every_export_exists():
    for name in trainc.__all__:
        assert getattr(trainc, name) is not None
        assert name in dir(trainc)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="NoSuchName"):
        _ = trainc.NoSuchName
