"""Emitting ops: the current program, its numbered locations and the layer path."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainc.core.errors import TraincError, VerifyError
from trainc.ir.locations import LocationTable, Site
from trainc.ir.mlir import location, mlir, tensor_type, to_attribute
from trainc.ir.registry import DIALECT, OpDef
from trainc.ir.tensor import Aval, Tensor

_IR_FOLDER = str(Path(__file__).parent)


@dataclass(frozen=True)
class _State:
    """What an emitted op needs beside MLIR's own insertion point."""

    table: LocationTable
    layer: str = ""
    fixed_location: Any = None


_state: ContextVar[_State | None] = ContextVar("trainc_builder", default=None)


def _current() -> _State:
    state = _state.get()
    if state is None:
        raise VerifyError("expected to be inside trainc.ir.trace or a pass; no program is being built")
    return state


@contextmanager
def _with_state(state: _State) -> Iterator[None]:
    token = _state.set(state)
    try:
        yield
    finally:
        _state.reset(token)


@contextmanager
def tracing(table: LocationTable, block: Any) -> Iterator[None]:
    """Emit at the end of a block, numbering each op in the table."""
    with mlir.InsertionPoint(block), _with_state(_State(table)):
        yield


@contextmanager
def rewriting(op: Any) -> Iterator[None]:
    """Emit before an op, with that op's location."""
    with mlir.InsertionPoint(op), _with_state(_State(LocationTable(), fixed_location=op.location)):
        yield


@contextmanager
def layer(name: str) -> Iterator[None]:
    """Append a name to the layer path of the ops emitted inside."""
    state = _current()
    path = f"{state.layer}.{name}" if state.layer else name
    with _with_state(replace(state, layer=path)):
        yield


@contextmanager
def as_layer(path: str) -> Iterator[None]:
    """Emit under exactly this layer path (backward rules run under their forward op's path)."""
    with _with_state(replace(_current(), layer=path)):
        yield


def current_table() -> LocationTable:
    """Return the location table of the program being built."""
    return _current().table


def _user_site(op_name: str, layer_path: str) -> Site:
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_IR_FOLDER):
        frame = frame.f_back
    return Site(op_name, layer_path, frame.f_code.co_filename, frame.f_lineno)


def next_location(op_name: str) -> Any:
    """Return the location of the next op: the rewritten op's own, or a new number."""
    state = _current()
    if state.fixed_location is not None:
        return state.fixed_location
    return location(state.table.add(_user_site(op_name, state.layer)))


def emit(op: OpDef, operands: Sequence[Tensor], **attributes: Any) -> tuple[Tensor, ...]:
    """Emit one op after checking its operands.

    Raises:
        ShapeError, DtypeError: From the op's shape rule, with the op, the layer and the user's line.
    """
    avals = infer(op, [t.aval for t in operands], attributes)
    created = create(op.name, avals, [t.value for t in operands], attributes)
    return tuple(Tensor(result) for result in created.results)


def infer(op: OpDef, avals: Sequence[Aval], attributes: dict[str, Any]) -> list[Aval]:
    """Run an op's shape rule; its error names the op, every operand's shape and the user's line."""
    try:
        return op.infer(*avals, **attributes)
    except TraincError as error:
        names = [name.rstrip("*") for name in op.operands]
        names += names[-1:] * (len(avals) - len(names))
        shown = ", ".join(f"{name} {aval}" for name, aval in zip(names, avals, strict=False))
        state = _state.get()
        where = f"; at {_user_site(op.name, state.layer)}" if state and state.fixed_location is None else ""
        raise type(error)(f"train.{op.name}({shown}): {error}{where}") from None


def create(name: str, results: Sequence[Aval], operands: Sequence[Any], attributes: dict[str, Any]) -> Any:
    """Create a train op without a region at the insertion point."""
    return mlir.Operation.create(
        DIALECT + name,
        results=[tensor_type(a.shape, a.dtype) for a in results],
        operands=list(operands),
        attributes={k: to_attribute(v) for k, v in attributes.items()},
        loc=next_location(name),
    )
