"""The examples of the documentation run as they are printed."""

import ast

import pytest

from tests.docs.blocks import ROOT, python_blocks
from trainc import training

PAGES = ("docs/examples.md", "README.md")
BLOCKS = [(page, name, code) for page in PAGES for name, code in python_blocks(page).items()]


@pytest.mark.parametrize(("page", "name", "code"), BLOCKS, ids=[f"{page}:{name}" for page, name, _ in BLOCKS])
def test_the_example_runs(page, name, code, tmp_path, monkeypatch):
    if ".plot(" in code:
        pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(ROOT / page), "exec"), {"__name__": "__main__"})


def test_every_function_and_class_has_an_example():
    used = set()
    for _, _, code in BLOCKS:
        for node in ast.walk(ast.parse(code)):
            used |= {node.id} if isinstance(node, ast.Name) else set()
            used |= {node.attr} if isinstance(node, ast.Attribute) else set()
    # The states come from allocate_state, and Mamba3Block is used like TransformerBlock.
    alike = {"SambaState", "TransformerState", "Mamba3State", "Mamba3Block", "SmallByteLanguageModelTrainer"}
    assert set(training.__all__) - alike - {"schedule_from_config"} <= used


def test_the_pages_have_blocks():
    assert len(python_blocks("docs/examples.md")) > 20
    assert python_blocks("README.md")
