"""docs/dialect.md lists the ops that are registered; `python -m tests.ir.test_dialect_doc` writes its tables."""

import re
import sys
from pathlib import Path

import trainc.ir.ops
from trainc.ir.registry import OpDef, lookup, op_names

PAGE = Path(__file__).resolve().parents[2] / "docs/dialect.md"


def tables() -> dict[str, list[str]]:
    """Return the rows of both tables, from the registry and the first lines of the ops' files."""
    ops = [op for op in map(lookup, op_names()) if op.infer.__module__.startswith("trainc.")]
    return {
        "primitives": [_row(op) for op in ops if op.primitive],
        "layer ops": [_row(op, "yes" if op.backward else "") for op in ops if not op.primitive],
    }


def _row(op: OpDef, *more: str) -> str:
    module = op.infer.__module__
    purpose = (sys.modules[module].__doc__ or "").splitlines()[0].partition(": ")[2].rstrip(".")
    path = module.removeprefix("trainc.ir.").replace(".", "/")
    cells = (f"`{op.name}`", ", ".join(op.operands), ", ".join(op.attributes), *more, f"`{path}`", purpose)
    return f"| {' | '.join(cells)} |".replace("*", "\\*")


def page_with(rows: dict[str, list[str]], text: str) -> str:
    """Return the page with the rows of each table (after a comment with its name, a head and a rule) replaced."""
    for name, lines in rows.items():
        head = re.compile(rf"(<!-- {name} -->\n\|.*\n\|.*\n)(?:\|.*\n)*")
        assert head.search(text), f"{PAGE.name} should have a table after <!-- {name} -->"
        text = head.sub(lambda match, lines=lines: match[1] + "".join(f"{line}\n" for line in lines), text)
    return text


def test_the_page_lists_every_op() -> None:
    text = PAGE.read_text("utf-8")
    assert page_with(tables(), text) == text, "run: python -m tests.ir.test_dialect_doc"


def test_the_examples_are_the_real_files() -> None:
    """Each block after a comment such as <!-- add.py --> must be in that file of trainc/ir/ops, to the letter."""
    folder = Path(trainc.ir.ops.__file__).parent
    blocks = re.findall(r"<!-- (\w+\.py) -->\n```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert {name for name, _ in blocks} == {"add.py", "linear.py"}
    for name, block in blocks:
        assert block in (folder / name).read_text("utf-8"), f"{name}:\n{block}"


if __name__ == "__main__":
    PAGE.write_text(page_with(tables(), PAGE.read_text("utf-8")), "utf-8")
