"""The plain loop behind every rewriting pass."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainc.ir import builder
from trainc.ir.mlir import entry_block, functions, scope
from trainc.ir.program import Program
from trainc.ir.registry import DIALECT, lookup

Rewrite = Callable[[Any], Sequence[Any]]
"""Takes an op, emits its replacement before it, returns the values that stand for its results."""


def rewrite_ops(program: Program, rewrites: Mapping[str, Rewrite]) -> None:
    """Replace every op that has a rewrite, in order, keeping its location.

    Args:
        program: Rewritten in place.
        rewrites: By op name without the dialect; each name must be registered, so a typo cannot pass silently.
    """
    by_name = {DIALECT + lookup(name).name: rewrite for name, rewrite in rewrites.items()}
    with scope():
        for function in functions(program.module):
            for item in list(entry_block(function).operations):
                op = item.operation
                if op.name in by_name:
                    replace_op(op, by_name[op.name])


def replace_op(op: Any, rewrite: Rewrite) -> None:
    """Emit an op's replacement before it and erase it."""
    with builder.rewriting(op), op.location:
        values = rewrite(op)
    for old, new in zip(op.results, values, strict=True):
        old.replace_all_uses_with(new)
    op.erase()
