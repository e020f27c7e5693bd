"""Program: a module of traced functions with the table of where their ops came from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trainc.core.errors import VerifyError
from trainc.ir import builder
from trainc.ir.locations import LocationTable
from trainc.ir.mlir import func, functions, mlir, parse_module, print_module, scope, shape_of_type, tensor_type
from trainc.ir.tensor import Aval, Tensor

NAME = "trainc.name"
STATE = "trainc.state"
WHOLE = "*"
"""Name of an argument or result that is a whole flat buffer rather than one tensor of it."""


@dataclass(frozen=True)
class Argument:
    """One argument of a traced function.

    Attributes:
        name: Its name in the entry's signature.
        aval: Shape and dtype.
        state: The flat buffer it is a part of, or None for a value passed with each call.
    """

    name: str
    aval: Aval
    state: str | None = None


@dataclass(frozen=True)
class Result:
    """One result of a traced function.

    Attributes:
        name: Its name in the entry's signature.
        tensor: The value.
        state: The flat buffer it is written into, or None for a value returned to the caller.
    """

    name: str
    tensor: Tensor
    state: str | None = None


class Program:
    """A module under construction or rewriting.

    Attributes:
        module: The MLIR module.
        table: The sites of its numbered ops.
    """

    def __init__(self, module: Any | None = None, table: LocationTable | None = None) -> None:
        with scope():
            self.module = module if module is not None else mlir.Module.create()
        self.table = table if table is not None else LocationTable()

    @classmethod
    def parse(cls, text: str) -> Program:
        """Read a printed program; its location table is empty.

        Raises:
            VerifyError: The text is not MLIR.
        """
        return cls(parse_module(text))

    def print(self, *, debug_info: bool = False) -> str:
        """Print the module; with debug_info, with the numbered locations."""
        return print_module(self.module, debug_info=debug_info)

    def clone(self) -> Program:
        """Return an independent copy sharing the location table."""
        return Program(parse_module(self.print(debug_info=True)), self.table)

    def function(self, name: str) -> Any:
        """Return the function op of a name.

        Raises:
            VerifyError: There is none.
        """
        for function in functions(self.module):
            if function.name.value == name:
                return function
        known = [f.name.value for f in functions(self.module)]
        raise VerifyError(f"expected a function of the program, got {name!r}; it has {known}")


def trace(
    program: Program, name: str, function: Callable[..., Sequence[Result]], arguments: Sequence[Argument]
) -> None:
    """Trace a Python function into a new function of a program.

    Args:
        program: Receives the function.
        name: Name of the new function.
        function: Takes one Tensor an argument, returns the results.
        arguments: The function's arguments in order.
    """
    with scope():
        types = [tensor_type(a.aval.shape, a.aval.dtype) for a in arguments]
        with mlir.InsertionPoint(program.module.body):
            op = func.FuncOp(name, mlir.FunctionType.get(types, []))
        block = op.add_entry_block()
        op.arg_attrs = mlir.ArrayAttr.get([_attributes(a.name, a.state) for a in arguments])
        with builder.tracing(program.table, block):
            results = function(*(Tensor(argument) for argument in block.arguments))
            func.ReturnOp([r.tensor.value for r in results])
        op.attributes["function_type"] = mlir.TypeAttr.get(
            mlir.FunctionType.get(types, [r.tensor.value.type for r in results])
        )
        op.result_attrs = mlir.ArrayAttr.get([_attributes(r.name, r.state) for r in results])


def _attributes(name: str, state: str | None) -> Any:
    pairs = {NAME: mlir.StringAttr.get(name)}
    if state is not None:
        pairs[STATE] = mlir.StringAttr.get(state)
    return mlir.DictAttr.get(pairs)


@dataclass(frozen=True)
class Port:
    """An argument or result of a function as recorded in its attributes."""

    name: str
    aval: Aval
    state: str | None


def ports(function: Any) -> tuple[list[Port], list[Port]]:
    """Return the arguments and results of a function op."""
    type_ = function.type
    arg_attrs = list(function.arg_attrs) if "arg_attrs" in function.attributes else []
    res_attrs = list(function.attributes["res_attrs"]) if "res_attrs" in function.attributes else []
    return _ports(type_.inputs, arg_attrs, "arg"), _ports(type_.results, res_attrs, "result")


def _ports(types: Sequence[Any], attributes: Sequence[Any], default: str) -> list[Port]:
    found = []
    for position, type_ in enumerate(types):
        attribute = attributes[position] if attributes else {}
        name = attribute[NAME].value if NAME in attribute else f"{default}{position}"
        state = attribute[STATE].value if STATE in attribute else None
        element = mlir.RankedTensorType(type_).element_type
        found.append(Port(name, Aval(shape_of_type(type_), str(element)), state))
    return found
