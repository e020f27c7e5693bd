"""bind-buffers: tensors that live in flat device buffers are read and written there, without copies.

A traced function has one argument a tensor. This pass gives it the calling convention of an entry: one `!hal.buffer` an
argument for each flat buffer it touches, tensors cut out of it as aligned subspans, results written through aliases of
subspans, and rank-0 arguments passed as plain scalars. A gradient buffer is written whole, zeros between tensors
included, so what is read back never holds stale elements. A result that is an argument of the same place with some rows
put in is not written back: the compiler puts the rows into the argument's memory. Memory of a length that each call
chooses (the arrays of an optimizer) is used from its first element on; the number of elements is one more scalar
argument, `length`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, ClassVar

from trainc.core.errors import VerifyError
from trainc.core.state_table import StateTable, padded
from trainc.ir.mlir import DYNAMIC, arith, entry_block, functions, mlir, scope, tensor, tensor_type
from trainc.ir.program import NAME, STATE, WHOLE, Port, Program, ports

_DENSE_ROW_MAJOR = 1  # the runtime's number of this encoding

LENGTH = "length"
"""Name of the scalar argument that gives the number of elements of memory of dynamic length."""


@dataclass(frozen=True)
class BindBuffers:
    """Bind state arguments and results to flat buffers.

    Attributes:
        tables: Layout of each flat buffer, by state name.
    """

    name: ClassVar[str] = "bind-buffers"
    tables: Mapping[str, StateTable] = field(default_factory=dict)

    def run(self, program: Program) -> None:
        """Rewrite every function of the program in place."""
        with scope():
            for function in functions(program.module):
                _Binder(function, self.tables).run()


def states_of(function: Any) -> list[str]:
    """Return the flat buffers a function touches, in the order they are passed."""
    arguments, results = ports(function)
    return list(dict.fromkeys(p.state for p in (*arguments, *results) if p.state is not None))


def is_dynamic(port: Port) -> bool:
    """Return whether a port is memory of a length that each call chooses."""
    return port.state is not None and port.aval.shape == (DYNAMIC,)


def has_length(function: Any) -> bool:
    """Return whether a function gets the argument `length`."""
    return any(is_dynamic(port) for side in ports(function) for port in side)


class _Binder:
    """Rewrites one function."""

    def __init__(self, function: Any, tables: Mapping[str, StateTable]) -> None:
        self.function = function
        self.tables = tables
        self.block = entry_block(function)
        self.arguments, self.results = ports(function)
        self.buffer_type = mlir.Type.parse("!hal.buffer")
        self.view_type = mlir.Type.parse("!hal.buffer_view")
        self.length: list[Any] = []
        self.read: dict[tuple[str, str], Any] = {}

    def run(self) -> None:
        """Replace the function's arguments, results and type."""
        old = list(self.block.arguments)
        location = self.function.location
        states = states_of(self.function)
        buffers = {state: self.block.add_argument(self.buffer_type, location) for state in states}
        plain = [(argument, port) for argument, port in zip(old, self.arguments, strict=True) if port.state is None]
        names = [(state, state) for state in states] + [(port.name, "") for _, port in plain]
        with mlir.InsertionPoint.at_block_begin(self.block), location:
            for argument, port in plain:
                self._pass(argument, port)
            if has_length(self.function):
                names.append((LENGTH, ""))
                length = self.block.add_argument(mlir.IntegerType.get_signless(32), location)
                self.length = [arith.index_cast(mlir.IndexType.get(), length)]
            for argument, port in zip(old, self.arguments, strict=True):
                if port.state is not None:
                    self.read[port.state, port.name] = self._read(buffers[port.state], port)
                    argument.replace_all_uses_with(self.read[port.state, port.name])
        for _ in old:
            self.block.erase_argument(0)
        self._write_results(buffers)
        self._set_type(names)

    def _pass(self, argument: Any, port: Port) -> None:
        """Give a plain argument its new place; a rank-0 tensor becomes a scalar."""
        if port.aval.shape:
            argument.replace_all_uses_with(self.block.add_argument(argument.type, self.function.location))
            return
        scalar_type = mlir.RankedTensorType(argument.type).element_type
        scalar = self.block.add_argument(scalar_type, self.function.location)
        argument.replace_all_uses_with(tensor.from_elements(argument.type, [scalar]))

    def _span(self, port: Port) -> tuple[int, int]:
        """Return a port's offset and padded size in its buffer, in elements."""
        table = self.tables.get(port.state or "")
        if table is None:
            raise VerifyError(f"expected a table for state {port.state!r}, got tables for {sorted(self.tables)}")
        if port.name == WHOLE:
            return 0, table.size
        if port.name not in table.names:
            raise VerifyError(f"expected a tensor of table {table.name}, got {port.name!r}")
        entry = table[port.name]
        if entry.shape != port.aval.shape:
            raise VerifyError(f"{port.state}.{port.name} has shape {entry.shape}, the program's is {port.aval.shape}")
        return entry.offset, padded(entry.size)

    def _memory(self, buffer: Any, port: Port, elements: int) -> Any:
        """Return the part of a buffer that a port stands for."""
        if is_dynamic(port):
            return buffer
        offset, _ = self._span(port)
        index = mlir.IndexType.get()
        start, length = (arith.constant(index, 4 * count) for count in (offset, elements))
        return mlir.Operation.create("hal.buffer.subspan", [self.buffer_type], [buffer, start, length]).results[0]

    def _dims(self, port: Port) -> list[Any]:
        return self.length if is_dynamic(port) else []

    def _read(self, buffer: Any, port: Port) -> Any:
        type_ = tensor_type(port.aval.shape, port.aval.dtype)
        dims = self._dims(port)
        memory = self._memory(buffer, port, prod(port.aval.shape))
        attributes = {
            "target_encoding": mlir.TypeAttr.get(type_),
            "operandSegmentSizes": mlir.DenseI32ArrayAttr.get([1, len(dims), 0, 0]),
        }
        return mlir.Operation.create("hal.tensor.import", [type_], [memory, *dims], attributes).results[0]

    def _write_results(self, buffers: Mapping[str, Any]) -> None:
        terminator = list(self.block.operations)[-1].operation
        returned = []
        with mlir.InsertionPoint(terminator), self.function.location:
            for value, port in zip(terminator.operands, self.results, strict=True):
                returned.append(value if port.state is None else self._write(value, buffers[port.state], port))
            mlir.Operation.create("func.return", operands=returned)
        terminator.erase()

    def _write(self, value: Any, buffer: Any, port: Port) -> Any:
        if self._is_in_place(value, port):
            return self._view(buffer, port)
        dims = self._dims(port)
        size = 0 if dims else self._span(port)[1]
        flat = value if dims else _flatten(value, size)
        memory = self._memory(buffer, port, size)
        segments = {"operandSegmentSizes": mlir.DenseI32ArrayAttr.get([1, len(dims), 1, 0])}
        aliased = mlir.Operation.create("hal.tensor.alias", [flat.type], [flat, *dims, memory], segments).results[0]
        encoding = {"source_encoding": mlir.TypeAttr.get(flat.type)}
        return mlir.Operation.create("hal.tensor.export", [self.view_type], [aliased, *dims], encoding).results[0]

    def _is_in_place(self, value: Any, port: Port) -> bool:
        """Return whether a result is its own argument with rows put in: the compiler then writes to the argument."""
        owner = value.owner
        if owner.name != "tensor.insert_slice" or port.state is None:
            return False
        argument = self.read.get((port.state, port.name))
        return argument is not None and owner.operation.operands[1] == argument

    def _view(self, buffer: Any, port: Port) -> Any:
        """Return a view of the memory of a result that is there already."""
        i32, index = mlir.IntegerType.get_signless(32), mlir.IndexType.get()
        offset, size = self._span(port)
        element = mlir.TypeAttr.get(tensor_type((), port.aval.dtype).element_type)
        described = [
            mlir.Operation.create("hal.element_type", [i32], [], {"type": element}).results[0],
            arith.constant(i32, _DENSE_ROW_MAJOR),
        ]
        start, length, *shape = (arith.constant(index, n) for n in (4 * offset, 4 * size, *port.aval.shape))
        operands = [buffer, start, length, *described, *shape]
        return mlir.Operation.create("hal.buffer_view.create", [self.view_type], operands).results[0]

    def _set_type(self, names: Sequence[tuple[str, str]]) -> None:
        terminator = list(self.block.operations)[-1].operation
        inputs = [argument.type for argument in self.block.arguments]
        outputs = [value.type for value in terminator.operands]
        self.function.attributes["function_type"] = mlir.TypeAttr.get(mlir.FunctionType.get(inputs, outputs))
        self.function.arg_attrs = mlir.ArrayAttr.get([_name_attributes(*pair) for pair in names])


def _name_attributes(name: str, state: str) -> Any:
    pairs = {NAME: mlir.StringAttr.get(name)}
    if state:
        pairs[STATE] = mlir.StringAttr.get(state)
    return mlir.DictAttr.get(pairs)


def _flatten(value: Any, size: int) -> Any:
    """Return a tensor's elements as one dimension of a padded size."""
    ranked = mlir.RankedTensorType(value.type)
    count, element = prod(ranked.shape), ranked.element_type
    flat_type = mlir.RankedTensorType.get([count], element)
    if ranked.rank == 0:
        value = tensor.expand_shape(flat_type, value, [], [], [1])
    elif ranked.rank > 1:
        value = tensor.collapse_shape(flat_type, value, [list(range(ranked.rank))])
    if count == size:
        return value
    pad = tensor.PadOp(mlir.RankedTensorType.get([size], element), value, [], [], [0], [size - count])
    block = pad.regions[0].blocks.append(mlir.IndexType.get(), arg_locs=[pad.location])
    with mlir.InsertionPoint(block):
        tensor.YieldOp(arith.constant(element, 0.0 if str(element)[0] in "fb" else 0))
    return pad.result
