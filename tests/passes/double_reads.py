"""An independent detector of what guard-double-reads must not leave behind, on lowered programs.

It follows concrete positions instead of composing index maps: for a few elements of an elementwise op it asks which
elements of each reduction they read, through other elementwise ops and reshapes. Two different answers for one
reduction are a double read. A slice of a reduction counts as a reduction of its own; anything else ends the search.
"""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.ir.mlir import entry_block, functions, mlir, scope, shape_of
from trainc.ir.program import Program

SAMPLES = 16

Positions = npt.NDArray[np.int64]
"""(samples, rank): one element a row."""
Reads = frozenset[tuple[Any, bytes]]
"""Pairs of a reduction's value and the linear positions read in it."""


def unguarded_double_reads(program: Program) -> list[str]:
    """Return the types of reductions that one elementwise op of a lowered program reads in two ways."""
    found: dict[Any, None] = {}
    with scope():
        for function in functions(program.module):
            search = _Search()
            for item in entry_block(function).operations:
                op = item.operation
                if op.name == "linalg.generic" and not _reduces(op):
                    found.update(dict.fromkeys(search.read_twice(op)))
        return [str(value.type) for value in found]


class _Search:
    """Walks from values to the reductions they are computed from; one for a function."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, bytes], Reads] = {}
        self._rng = np.random.default_rng(0)

    def read_twice(self, op: Any) -> Iterator[Any]:
        shape = shape_of(op.results[0])
        positions = self._rng.integers(0, shape, (SAMPLES, len(shape))) if shape else np.zeros((SAMPLES, 0), np.int64)
        sources = [source for source, _ in self._through(op, positions)]
        yield from (source for source in dict.fromkeys(sources) if sources.count(source) > 1)

    def _reads(self, value: Any, positions: Positions) -> Reads:
        key = (value, positions.tobytes())
        if key not in self._known:
            self._known[key] = self._find(value, positions)
        return self._known[key]

    def _find(self, value: Any, positions: Positions) -> Reads:
        op = value.owner
        if not hasattr(op, "operands"):  # an argument of the function
            return frozenset()
        op = op.operation if hasattr(op, "operation") else op
        shape = shape_of(value)
        match op.name:
            case "linalg.generic" if _reduces(op):
                return frozenset([(value, _linear(positions, shape).tobytes())])
            case "linalg.generic":
                return self._through(op, positions)
            case "tensor.expand_shape" | "tensor.collapse_shape":
                before = shape_of(op.operands[0])
                moved = (
                    np.stack(np.unravel_index(_linear(positions, shape), before), -1) if before else positions[:, :0]
                )
                return self._reads(op.operands[0], moved.astype(np.int64))
            case "tensor.extract_slice":
                below = self._reads(op.operands[0], np.zeros((SAMPLES, len(shape_of(op.operands[0]))), np.int64))
                return frozenset([(value, _linear(positions, shape).tobytes())]) if below else below
        return frozenset()

    def _through(self, op: Any, positions: Positions) -> Reads:
        found: set[tuple[Any, bytes]] = set()
        maps = [attribute.value for attribute in op.attributes["indexing_maps"]]
        assert [mlir.AffineDimExpr(e).position for e in maps[-1].results] == list(range(positions.shape[1]))
        for operand, indices in zip(list(op.operands)[: len(maps)], maps, strict=True):
            dims = [mlir.AffineDimExpr(expression).position for expression in indices.results]
            found |= self._reads(operand, np.ascontiguousarray(positions[:, dims]))
        return frozenset(found)


def _reduces(op: Any) -> bool:
    return any("reduction" in str(kind) for kind in op.attributes["iterator_types"])


def _linear(positions: Positions, shape: Sequence[int]) -> Positions:
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return positions @ np.array(strides, np.int64).reshape(-1) if shape else np.zeros(len(positions), np.int64)
