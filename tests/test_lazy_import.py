"""What importing trainc must not load: nothing compiled before it is needed."""

import subprocess
import sys

import pytest

import trainc
from trainc import training


def loaded_after(statements: str) -> set[str]:
    """The modules in a fresh interpreter after the given statements."""
    code = f"{statements}\nimport sys; print(*sorted(sys.modules), sep='\\n')"
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    return set(run.stdout.splitlines())


def roots(modules: set[str]) -> set[str]:
    return {module.split(".")[0] for module in modules}


@pytest.mark.parametrize("statement", ["import trainc", "import trainc.training", "from trainc import training"])
def test_the_imports_load_nothing_heavy(statement):
    loaded = loaded_after(statement)
    assert roots(loaded).isdisjoint({"iree", "numpy", "safetensors", "lark", "rich", "typer"})
    assert {module for module in loaded if module.startswith("trainc.")} == {"trainc.training"}


@pytest.mark.parametrize(
    "statements",
    [
        "from trainc import SambaConfig\nSambaConfig(256, 64, ('mamba3', 'attention'), n_heads=4, intermediate=128)",
        "from trainc import ConstantLR, WarmupLinearLR, WarmupCosineLR\nWarmupCosineLR(1e-3, 2, 10).lr_at(3)",
        "from trainc import Generator\nGenerator(7).uniform(8)",
        "from trainc.training import WarmupCosineLR, schedule_from_config\n"
        "schedule_from_config(WarmupCosineLR(1e-3, 2, 10).config())",
        "from trainc.training import LanguageModelConfig\nLanguageModelConfig(batch=4)",
        "import array\nfrom trainc.training import SGD, Adam, AdamW, ConstantLR\n"
        "for rule in (SGD, Adam, AdamW):\n"
        "    rule(array.array('f', [1.0, 2.0]), lr_schedule=ConstantLR(1e-2)).state_dict()",
        "from trainc.training import accumulation_is_aligned\nassert accumulation_is_aligned(512, 4)",
        # Naming a function or a class loads its module, and still nothing compiled.
        "import trainc\nfor name in trainc.training.__all__:\n    getattr(trainc, name)",
    ],
)
def test_the_exports_load_no_iree(statements):
    assert "iree" not in roots(loaded_after(statements))


def test_the_command_line_loads_no_iree_and_no_numpy():
    code = "from trainc.cli.main import main\nassert main(['--version']) == 0"
    assert roots(loaded_after(code)).isdisjoint({"iree", "numpy", "safetensors"})


@pytest.mark.parametrize("module", [trainc, training])
def test_every_export_exists(module):
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        assert getattr(module, name) is not None
        assert name in dir(module)


def test_trainc_offers_what_training_offers():
    assert set(trainc.__all__) == {*training.__all__, "training", "__version__"}
    for name in training.__all__:
        assert getattr(trainc, name) is getattr(training, name)


@pytest.mark.parametrize("module", [trainc, training])
def test_an_unknown_name_is_an_attribute_error(module):
    with pytest.raises(AttributeError, match="NoSuchName"):
        _ = module.NoSuchName
    assert not hasattr(module, "load_kernel")
