"""guard-double-reads: cure of a silent miscompile.

IREE fuses a reduction with the elementwise op that consumes it and tiles along one of the consumer's readings. If the
consumer reads the fresh reduction through two different index readings (cs_i and cs_j in exp(cs_i - cs_j)), values
outside the tile are garbage and nothing is reported (docs/iree-notes.md). A barrier after the reduction cures it. This
pass finds every such reduction and puts the barrier there.

The two readings may come together through other elementwise ops and through reshapes, which move no data. A slice is
computed as a smaller reduction of its own: only two readings of the same slice are in danger, and the barrier stands
behind it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from trainc.ir import builder
from trainc.ir.mlir import entry_block, functions, scope, shape_of
from trainc.ir.primitives import barrier
from trainc.ir.program import Program
from trainc.ir.spec import parse_spec
from trainc.ir.tensor import Tensor

_SOURCES = ("train.reduce", "train.matmul")

_Dims = tuple[int | None, ...]
_Shape = tuple[int, ...]
_View = tuple[_Dims, _Shape, _Shape]
_Reading = tuple[tuple[_View, ...], _Dims]
"""Reshapes on the way (dimensions read, shape before, shape after), then the reader's dimension for each one left."""
_Readings = dict[Any, set[_Reading]]


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
    """Return the results of reduce and matmul, and slices of them, that some map reads in more than one way."""
    readings: dict[Any, _Readings] = {}
    found: dict[Any, None] = {}
    for item in entry_block(function).operations:
        op = item.operation
        if op.name in _SOURCES or (op.name == "train.slice" and readings.get(op.operands[0])):
            readings[op.results[0]] = {op.results[0]: {((), _identity(shape_of(op.results[0])))}}
        elif op.name == "train.reshape":
            shapes = shape_of(op.operands[0]), shape_of(op.results[0])
            sources = readings.get(op.operands[0], {})
            readings[op.results[0]] = {s: {_reshaped(way, *shapes) for way in ways} for s, ways in sources.items()}
        elif op.name == "train.map":
            merged = _merge(op, readings)
            found.update(dict.fromkeys(source for source, ways in merged.items() if len(ways) > 1))
            kept = {source: ways for source, ways in merged.items() if source not in found}
            readings.update((result, kept) for result in op.results)
    return list(found)


def _identity(shape: _Shape) -> _Dims:
    return tuple(range(len(shape)))


def _reshaped(way: _Reading, before: _Shape, after: _Shape) -> _Reading:
    """Append a reshape to a reading; two in a row are one, and one that leads back is none."""
    views, dims = way
    if views and dims == _identity(before):
        *rest, (dims, before, _) = views
        views = tuple(rest)
    if before == after:
        return views, dims
    return (*views, (dims, before, after)), _identity(after)


def _merge(op: Any, readings: dict[Any, _Readings]) -> _Readings:
    """Compose each operand's readings of the sources with the operand's own index term."""
    spec = parse_spec(op.attributes["spec"].value)
    merged: _Readings = {}
    for operand, term in zip(op.operands, spec.operands, strict=True):
        for source, ways in readings.get(operand, {}).items():
            merged.setdefault(source, set()).update(_compose(ways, term, spec.output))
    return merged


def _compose(ways: set[_Reading], term: str, output: str) -> Iterator[_Reading]:
    for views, dims in ways:
        yield views, tuple(None if dim is None else output.index(term[dim]) for dim in dims)


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
