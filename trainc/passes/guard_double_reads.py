"""guard-double-reads: cure of a silent miscompile.

IREE fuses a reduction with the elementwise op that consumes it and tiles along one of the consumer's readings. If the
consumer reads the fresh reduction through two different index readings (cs_i and cs_j in exp(cs_i - cs_j)), values
outside the tile are garbage and nothing is reported (docs/iree-notes.md). A barrier after the reduction cures it. This
pass finds every such reduction, also when the two readings come together through other elementwise ops, and puts the
barrier there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from trainc.ir import builder
from trainc.ir.mlir import entry_block, functions, scope
from trainc.ir.primitives import barrier
from trainc.ir.program import Program
from trainc.ir.spec import parse_spec
from trainc.ir.tensor import Tensor

_SOURCES = ("train.reduce", "train.matmul")
_Reading = tuple[int | None, ...]


@dataclass(frozen=True)
class GuardDoubleReads:
    """Put a barrier after each reduction or product that one fused elementwise chain reads in two ways."""

    name: ClassVar[str] = "guard-double-reads"

    def run(self, program: Program) -> None:
        """Rewrite the program in place."""
        with scope():
            for function in functions(program.module):
                for source in find_double_reads(function):
                    _insert_barrier(source)


def find_double_reads(function: Any) -> list[Any]:
    """Return the reduce and matmul results that some map reads through more than one index reading."""
    readings: dict[Any, dict[Any, set[_Reading]]] = {}
    found: dict[Any, None] = {}
    for item in entry_block(function).operations:
        op = item.operation
        if op.name in _SOURCES:
            rank = len(op.results[0].type.shape)
            readings[op.results[0]] = {op.results[0]: {tuple(range(rank))}}
        elif op.name == "train.map":
            merged = _merge(op, readings)
            for source, ways in merged.items():
                if len(ways) > 1:
                    found[source] = None
            kept = {source: ways for source, ways in merged.items() if source not in found}
            for result in op.results:
                readings[result] = kept
    return list(found)


def _merge(op: Any, readings: dict[Any, dict[Any, set[_Reading]]]) -> dict[Any, set[_Reading]]:
    """Compose each operand's readings of the sources with the operand's own index term."""
    spec = parse_spec(op.attributes["spec"].value)
    merged: dict[Any, set[_Reading]] = {}
    for operand, term in zip(op.operands, spec.operands, strict=True):
        for source, ways in readings.get(operand, {}).items():
            merged.setdefault(source, set()).update(_compose(ways, term, spec.output))
    return merged


def _compose(ways: set[_Reading], term: str, output: str) -> Iterator[_Reading]:
    for way in ways:
        yield tuple(None if dim is None else output.index(term[dim]) for dim in way)


def _insert_barrier(value: Any) -> None:
    """Put a barrier right after the op that defines a value and route its other uses through it."""
    op = value.owner
    following = _next_op(op)
    with builder.rewriting(following), op.location:
        guarded = barrier(Tensor(value)).value
    for use in list(value.uses):
        if use.owner != guarded.owner:
            use.owner.operands[use.operand_number] = guarded


def _next_op(op: Any) -> Any:
    operations = [item.operation for item in op.parent.regions[0].blocks[0].operations]
    return operations[operations.index(op.operation if hasattr(op, "operation") else op) + 1]
