"""The dependency arrows between the packages, read from the source with ast.

ir -> core; passes -> ir, core; compiler -> passes, ir, core; runtime -> core;
frontends -> runtime, core, and inside functions also ir, compiler; cli -> everything.
A frontend's `tracing` folder is what its functions import when something is compiled: ir and compiler at the top.
"""

import ast
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

PACKAGES = ("core", "ir", "passes", "compiler", "runtime", "frontends", "cli")
ALWAYS = {
    "core": set(),
    "ir": {"core"},
    "passes": {"ir", "core"},
    "compiler": {"passes", "ir", "core"},
    "runtime": {"core"},
    "frontends": {"runtime", "core"},
    "cli": {*PACKAGES, ""},
    # The public faces, trainc/*.py: thin modules over the frontends.
    "": {"frontends", "core"},
}
VERSION = ("trainc", "trainc.__version__")
INSIDE_FUNCTIONS = {"frontends": {"ir", "compiler"}}
TRACING = ".tracing."
# What core may import inside functions, which then say how to install it: `Schedule.plot` needs the plot extra.
EXTRAS = {"matplotlib"}

COMPILER_HOMES = ("trainc/ir/mlir.py", "trainc/compiler/")
RUNTIME_HOMES = ("trainc/runtime/",)


@dataclass(frozen=True)
class Import:
    module: str
    line: int
    in_function: bool


class Collector(ast.NodeVisitor):
    """Collects what a module imports; what only a type checker sees (`if TYPE_CHECKING:`) is no import."""

    def __init__(self, package: str) -> None:
        self.package, self.depth, self.found = package, 0, []

    def add(self, module: str, node: ast.AST) -> None:
        self.found.append(Import(module, node.lineno, self.depth > 0))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.add(alias.name, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        if node.level:
            parents = self.package.split(".")
            base = ".".join([*parents[: len(parents) - node.level + 1], *([node.module] if node.module else [])])
        for alias in node.names:  # `from trainc import ir` names a package only together with its alias
            self.add(f"{base}.{alias.name}", node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in ("import_module", "__import__") and node.args and isinstance(node.args[0], ast.Constant):
            self.add(str(node.args[0].value), node)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        names = {part.id for part in ast.walk(node.test) if isinstance(part, ast.Name)}
        names |= {part.attr for part in ast.walk(node.test) if isinstance(part, ast.Attribute)}
        for child in node.orelse if "TYPE_CHECKING" in names else [node.test, *node.body, *node.orelse]:
            self.visit(child)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef


def imports_of(source: str, path: str) -> list[Import]:
    package = ".".join(Path(path).with_suffix("").parts[:-1])
    collector = Collector(package)
    collector.visit(ast.parse(source, path))
    return collector.found


def layer_of(module: str) -> str | None:
    """The layer a module of ours belongs to; None for other people's modules."""
    parts = module.split(".")
    if parts[0] != "trainc":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in PACKAGES else ""


def violations(source: str, path: str) -> list[str]:
    """What a module imports against the rules, as lines for the failure message."""
    layer = layer_of(".".join(Path(path).with_suffix("").parts))
    found = []
    for item in imports_of(source, path):
        other = layer_of(item.module)
        allowed = ALWAYS[layer] | {layer}
        traced = TRACING in f".{'.'.join(Path(path).parts)}"
        if item.in_function or traced:
            allowed = allowed | INSIDE_FUNCTIONS.get(layer, set())
        elif layer == "frontends" and TRACING in f"{item.module}.":
            found.append(f"{path}:{item.line} imports {item.module}: only inside functions")
        where = f"{path}:{item.line} imports {item.module}"
        if other is not None and other not in allowed and item.module not in VERSION:
            found.append(f"{where}: {layer or 'a face'} may import only {sorted(allowed)} there")
        free = {*sys.stdlib_module_names, "numpy", *(EXTRAS if item.in_function else ())}
        if layer == "core" and other is None and item.module.split(".")[0] not in free:
            found.append(f"{where}: core may import only numpy")
        for package, homes in (("iree.compiler", COMPILER_HOMES), ("iree.runtime", RUNTIME_HOMES)):
            if f"{item.module}.".startswith(f"{package}.") and not path.startswith(homes):
                found.append(f"{where}: only {', '.join(homes)} may")
    return found


def test_every_module_keeps_to_the_arrows():
    paths = sorted((ROOT / "trainc").rglob("*.py"))
    assert len(paths) > 20
    found = [line for path in paths for line in violations(path.read_text("utf-8"), path.relative_to(ROOT).as_posix())]
    assert not found, "\n".join(found)


def test_every_folder_is_a_known_layer():
    folders = {path.parent.name for path in (ROOT / "trainc").glob("*/__init__.py")}
    assert folders <= set(PACKAGES)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("trainc/core/x.py", "import trainc.ir"),
        ("trainc/core/x.py", "import safetensors"),
        ("trainc/core/x.py", "import matplotlib"),
        ("trainc/core/x.py", "def f():\n    import safetensors"),
        ("trainc/ir/x.py", "from trainc import passes"),
        ("trainc/ir/x.py", "from ..runtime import loop"),
        ("trainc/ir/ops/x.py", "from ...compiler.build import f"),
        ("trainc/ir/x.py", "from iree.compiler import ir"),
        ("trainc/ir/x.py", "from iree import compiler"),
        ("trainc/passes/x.py", "import iree.compiler.ir"),
        ("trainc/runtime/x.py", "def f():\n    from trainc.compiler import build"),
        ("trainc/runtime/x.py", "import importlib\nimportlib.import_module('trainc.compiler')"),
        ("trainc/compiler/x.py", "import iree.runtime"),
        ("trainc/frontends/x.py", "from trainc.ir import trace"),
        ("trainc/frontends/x.py", "class A:\n    import trainc.compiler"),
        ("trainc/frontends/x.py", "from trainc.frontends.samba.tracing import graph"),
        ("trainc/frontends/samba/tracing/x.py", "import trainc.cli"),
        ("trainc/frontends/x.py", "def f():\n    import trainc.cli"),
        ("trainc/core/x.py", "from trainc import SambaConfig"),
        ("trainc/training.py", "from trainc.compiler import build"),
        ("trainc/cli/x.py", "import iree.runtime"),
    ],
)
def test_a_wrong_arrow_is_found(path, source):
    assert violations(source, path)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("trainc/core/x.py", "import json, numpy as np\nfrom trainc.core import errors"),
        ("trainc/core/x.py", "def f():\n    from matplotlib.figure import Figure"),
        ("trainc/ir/mlir.py", "from iree.compiler import ir"),
        ("trainc/compiler/x.py", "import iree.compiler"),
        ("trainc/runtime/x.py", "import iree.runtime"),
        ("trainc/frontends/x.py", "def f():\n    from trainc.ir import trace\n    import trainc.compiler.build"),
        ("trainc/frontends/samba/tracing/x.py", "from trainc.ir import trace\nimport trainc.compiler.build"),
        ("trainc/frontends/x.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from trainc.ir import T"),
        ("trainc/cli/x.py", "from trainc import __version__\nimport trainc.compiler"),
    ],
)
def test_a_right_arrow_passes(path, source):
    assert violations(source, path) == []
