"""cse: equal ops on equal operands are computed once."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

from trainc.ir.mlir import entry_block, functions, scope
from trainc.ir.program import Program
from trainc.ir.registry import is_train_op


@dataclass(frozen=True)
class CommonSubexpressionElimination:
    """Replace a train op by an earlier one with the same name, operands, attributes and region."""

    name: ClassVar[str] = "cse"

    def run(self, program: Program) -> None:
        """Rewrite the program in place."""
        with scope():
            for function in functions(program.module):
                seen: dict[Hashable, Any] = {}
                for item in list(entry_block(function).operations):
                    op = item.operation
                    if not is_train_op(op):
                        continue
                    first = seen.setdefault(_key(op), op)
                    if first is not op:
                        for old, new in zip(op.results, first.results, strict=True):
                            old.replace_all_uses_with(new)
                        op.erase()


def _key(op: Any) -> Hashable:
    types = tuple(str(result.type) for result in op.results)
    return op.name, tuple(op.operands), _attributes(op), types, tuple(_region_key(region) for region in op.regions)


def _attributes(op: Any) -> Hashable:
    return frozenset((name, op.attributes[name]) for name in op.attributes)


def _region_key(region: Any) -> Hashable:
    """Describe a scalar region by its ops, naming values by position."""
    block = region.blocks[0]
    position = {argument: number for number, argument in enumerate(block.arguments)}
    described = []
    for item in block.operations:
        op = item.operation
        operands = tuple(position[v] for v in op.operands)
        described.append((op.name, operands, _attributes(op), tuple(str(r.type) for r in op.results)))
        for result in op.results:
            position[result] = len(position)
    return tuple(described)
