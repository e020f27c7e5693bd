"""The one door to MLIR: context, types, attributes and locations.

Nothing else in trainc.ir or trainc.passes imports the MLIR bindings. A single context lives for the
whole process; `scope()` makes it current.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from iree.compiler import ir as mlir
from iree.compiler import passmanager, rewrite
from iree.compiler.dialects import arith, func, linalg, tensor

from trainc.core.errors import DtypeError, VerifyError

__all__ = ["arith", "func", "linalg", "mlir", "passmanager", "rewrite", "tensor"]

DYNAMIC = -1
"""A size that each call chooses; all dynamic sizes of one function are equal."""

FILE = "trainc"
"""The file name in every location; the line is the op's number in the program's location table."""

_context: Any = None


def context() -> Any:
    """Return the process's MLIR context, with IREE's dialects and unregistered ops allowed."""
    global _context
    if _context is None:
        _context = mlir.Context()
        _context.allow_unregistered_dialects = True
    return _context


@contextmanager
def scope() -> Iterator[None]:
    """Make the context current, with an unknown location for whatever sets none."""
    with context(), mlir.Location.unknown():
        yield


def element_type(dtype: str) -> Any:
    """Return the MLIR element type of a dtype name such as "f32"."""
    match dtype:
        case "f32":
            return mlir.F32Type.get()
        case "f64":
            return mlir.F64Type.get()
        case "bf16":
            return mlir.BF16Type.get()
        case "i1" | "i32" | "i64":
            return mlir.IntegerType.get_signless(int(dtype[1:]))
        case "index":
            return mlir.IndexType.get()
    raise DtypeError(f"expected one of f32, f64, bf16, i1, i32, i64; got {dtype!r}")


def tensor_type(shape: Sequence[int], dtype: str) -> Any:
    """Return the ranked tensor type of a shape and dtype name."""
    dynamic = mlir.ShapedType.get_dynamic_size()
    return mlir.RankedTensorType.get([dynamic if n == DYNAMIC else n for n in shape], element_type(dtype))


def dtype_name(type_: Any) -> str:
    """Return the dtype name of an MLIR element type."""
    return str(type_)


def shape_of(value: Any) -> tuple[int, ...]:
    """Return the shape of a tensor value."""
    return shape_of_type(value.type)


def shape_of_type(type_: Any) -> tuple[int, ...]:
    """Return the shape of a tensor type, with DYNAMIC for sizes that each call chooses."""
    dynamic = mlir.ShapedType.get_dynamic_size()
    return tuple(DYNAMIC if n == dynamic else n for n in mlir.RankedTensorType(type_).shape)


def dtype_of(value: Any) -> str:
    """Return the element dtype name of a tensor value."""
    return dtype_name(mlir.RankedTensorType(value.type).element_type)


def to_attribute(value: Any) -> Any:
    """Convert a Python value to an MLIR attribute.

    Args:
        value: bool, int, float, str, a homogeneous sequence of int or str, or a float64 or int32 array.

    Returns:
        The attribute; `from_attribute` gives the same Python value back.
    """
    if isinstance(value, bool):
        return mlir.BoolAttr.get(value)
    if isinstance(value, int):
        return mlir.IntegerAttr.get(mlir.IntegerType.get_signless(64), value)
    if isinstance(value, float):
        return mlir.FloatAttr.get(mlir.F64Type.get(), value)
    if isinstance(value, str):
        return mlir.StringAttr.get(value)
    if isinstance(value, np.ndarray):
        return mlir.DenseElementsAttr.get(np.asarray(value, order="C"))
    if isinstance(value, Sequence) and all(isinstance(v, int) for v in value):
        return mlir.DenseI64ArrayAttr.get(list(value))
    if isinstance(value, Sequence) and all(isinstance(v, str) for v in value):
        return mlir.ArrayAttr.get([mlir.StringAttr.get(v) for v in value])
    raise VerifyError(f"expected a bool, int, float, str, array or sequence as an attribute; got {value!r}")


def from_attribute(attribute: Any) -> Any:
    """Convert an attribute made by `to_attribute` back to its Python value."""
    if isinstance(attribute, mlir.BoolAttr | mlir.IntegerAttr | mlir.FloatAttr | mlir.StringAttr):
        return attribute.value
    if isinstance(attribute, mlir.DenseI64ArrayAttr):
        return tuple(attribute)
    if isinstance(attribute, mlir.ArrayAttr):
        return tuple(from_attribute(a) for a in attribute)
    if isinstance(attribute, mlir.DenseElementsAttr):
        return np.array(attribute)
    raise VerifyError(f"expected an attribute of the train dialect; got {attribute}")


def attributes_of(op: Any) -> dict[str, Any]:
    """Return an op's attributes as Python values."""
    return {name: from_attribute(op.attributes[name]) for name in op.attributes}


def location(number: int) -> Any:
    """Return the location that carries an op's number."""
    return mlir.Location.file(FILE, number, 0)


def location_number(op: Any) -> int | None:
    """Return the number in an op's location, or None if it has none."""
    loc = op.location
    if isinstance(loc, mlir.FileLineColLoc) and loc.filename == FILE:
        return int(loc.start_line)
    return None


def functions(module: Any) -> list[Any]:
    """Return the function ops of a module in order."""
    return [op for op in module.body.operations if op.operation.name == "func.func"]


def entry_block(function: Any) -> Any:
    """Return the only block of a function."""
    return function.regions[0].blocks[0]


def parse_module(text: str) -> Any:
    """Parse a module, turning the parser's error into a VerifyError."""
    with scope():
        try:
            return mlir.Module.parse(text)
        except mlir.MLIRError as error:
            first = str(error.error_diagnostics[0].message) if error.error_diagnostics else str(error)
            raise VerifyError(f"expected MLIR text of the train dialect; the parser said: {first}") from error


def print_module(module: Any, *, debug_info: bool = False) -> str:
    """Print a module; with debug_info, each op carries its numbered location."""
    return str(module.operation.get_asm(enable_debug_info=debug_info))
