"""Metal's language: read as the C++ that it is, once the words that Metal adds are gone.

This is syntax only. Types and names are checked by Apple's compiler, which there is for macOS alone.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from benchmarks.offline import tools
from benchmarks.offline.finding import Finding
from trainc.compiler.targets import Target

_METAL_WORDS = re.compile(r"\b(?:kernel|constant|device|threadgroup|thread)\b|\[\[[^\]]*\]\]")
_KERNEL = re.compile(r"\bkernel\s+void\s+(\w+)\s*\(")


def check(path: Path, target: Target) -> Finding:
    """Check the text of one executable."""
    tools.metal_parser()
    source = path.read_text(encoding="utf-8")
    plain = _METAL_WORDS.sub(lambda match: " " * len(match[0]), source)
    root = _parse(plain.encode()).root_node
    kernels = frozenset(_KERNEL.findall(source))
    problems = []
    wrong = _first_wrong(root)
    if wrong is not None:
        row, column = wrong.start_point
        problems.append(f"line {row + 1}, column {column + 1} is no C++: {source.splitlines()[row].strip()[:100]}")
    unparsed = kernels - _functions(root)
    if unparsed:
        problems.append(f"kernel {sorted(unparsed)[0]} is not read as a function")
    return Finding(kernels, tuple(problems))


def _parse(source: bytes) -> Any:
    import tree_sitter
    import tree_sitter_cpp

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language())).parse(source)


def _first_wrong(node: Any) -> Any:
    """The first node that is an error or was missing in the text, or None."""
    if node.is_error or node.is_missing:
        return node
    if not node.has_error:
        return None
    return next(filter(None, map(_first_wrong, node.children)), node)


def _functions(root: Any) -> set[str]:
    """Names of the functions that a file defines."""
    definitions = (node for node in root.children if node.type == "function_definition")
    declarators = (node.child_by_field_name("declarator") for node in definitions)
    names = (node.child_by_field_name("declarator") for node in declarators if node is not None)
    return {node.text.decode() for node in names if node is not None}
