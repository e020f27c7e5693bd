"""Which ops of a program each dispatch computes: the names in a profile, mapped back to where they came from.

The compiler cuts a program into dispatches (functions that the device runs) and names them in order. Compiled only as
far as that cut, which takes a second or two, the program still has its numbered locations, and the names are those of
the finished module.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from trainc.compiler.build import COMPILE_TIMEOUT_S, lower, module_flags
from trainc.compiler.iree import run_iree_compile
from trainc.compiler.targets import Target
from trainc.core.modes import DEFAULT_MODE, DEFAULT_PRECISION
from trainc.core.state_table import StateTable
from trainc.ir.locations import LocationTable, Site
from trainc.ir.mlir import FILE, mlir, parse_module, scope
from trainc.ir.program import Program

_DIMENSION = re.compile(r"d(\d+)")
_ARITHMETIC = re.compile(r"^(arith\.(add|sub|mul|div|neg|maximum|minimum|maxnum|minnum|rem)f|math\.\w+)$")
_LOAD, _STORE = "iree_tensor_ext.dispatch.tensor.load", "iree_tensor_ext.dispatch.tensor.store"
_FREE = frozenset({"linalg.fill", "linalg.copy", "linalg.transpose"})


@dataclass(frozen=True)
class Dispatch:
    """One dispatch of a program.

    Attributes:
        sites: Where each of its calls came from, in order; empty if the compiler made it of nothing of ours.
        fused: Other ops whose work it also does, sorted.
        bytes: Bytes one call reads and writes, each tensor part once; None if a size is known only at run time.
        flops: Floating-point operations of one call, a multiplication with addition counted as two and every function
            such as exp as one; None if it has an op that this count does not know.
    """

    sites: tuple[Site, ...]
    fused: tuple[str, ...]
    bytes: int | None
    flops: int | None


def dispatch_table(
    program: Program,
    tables: Mapping[str, StateTable],
    target: Target,
    mode: str = DEFAULT_MODE,
    precision: str = DEFAULT_PRECISION,
) -> dict[str, Dispatch]:
    """Return the dispatches of a program by the name a profile shows.

    Args:
        program: A traced program, as for `compile_modules`; left unchanged.
        tables: Layout of each flat buffer the program names.
        target: What it is compiled for.
        mode: Numeric mode.
        precision: What the operands of large matrix products are rounded to.

    Raises:
        CompileError: The compiler is absent, refused the program or ran out of time.
    """
    text = lower(program, tables, mode, precision, target.family, target.vector_bytes)
    flags = (*module_flags(program, target, text), "--compile-to=flow", "--mlir-print-debuginfo")
    cut = run_iree_compile(text, flags, timeout_s=COMPILE_TIMEOUT_S, locations=program.table).decode()
    module = parse_module(cut)
    with scope():
        return _read(module, program.table)


def _read(module: Any, locations: LocationTable) -> dict[str, Dispatch]:
    calls: dict[str, list[int]] = {}
    executables: dict[str, Any] = {}
    for op in _inside(module.operation):
        if op.name == "flow.dispatch":
            for symbol in op.attributes["entry_points"]:
                calls.setdefault(mlir.SymbolRefAttr(symbol).value[-1], []).extend(_numbers(op)[:1])
        elif op.name == "flow.executable":
            executables.update(_functions(op))
    return {name: _dispatch(function, calls.get(name, []), locations) for name, function in executables.items()}


def _functions(executable: Any) -> Iterator[tuple[str, Any]]:
    for op in _inside(executable):
        if op.name == "func.func":
            yield op.attributes["sym_name"].value, op


def _dispatch(function: Any, called_from: list[int], locations: LocationTable) -> Dispatch:
    ops = list(_inside(function))
    computed = [number for op in ops if op.name.startswith(("linalg.", "iree_linalg_ext.")) for number in _numbers(op)]
    origins = called_from or (computed or [number for op in ops for number in _numbers(op)])[:1]
    sites = tuple(site for number in origins if (site := locations.get(number)) is not None)
    names = {site.op for number in computed if (site := locations.get(number)) is not None}
    return Dispatch(sites, tuple(sorted(names - {site.op for site in sites})), _bytes(ops), _flops(ops))


def _inside(op: Any) -> Iterator[Any]:
    """Every op inside an op, in order."""
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from _inside(inner.operation)


def _numbers(op: Any) -> list[int]:
    """The numbers in an op's location, the first of a fused one being its root's."""
    places = op.location.locations if isinstance(op.location, mlir.FusedLoc) else [op.location]
    return [
        int(place.start_line) for place in places if isinstance(place, mlir.FileLineColLoc) and place.filename == FILE
    ]


def _bytes(ops: list[Any]) -> int | None:
    moved = [op.results[0].type for op in ops if op.name == _LOAD]
    moved += [op.operands[0].type for op in ops if op.name == _STORE]
    sizes = [_size_bytes(mlir.RankedTensorType(type_)) for type_ in moved]
    return None if any(size is None for size in sizes) else sum(size for size in sizes if size is not None)


def _size_bytes(type_: Any) -> int | None:
    if not type_.has_static_shape:
        return None
    width = type_.element_type.width if hasattr(type_.element_type, "width") else 64  # index
    return int(prod(type_.shape)) * max(1, int(width) // 8)


def _flops(ops: list[Any]) -> int | None:
    total = 0
    for op in ops:
        if not op.name.startswith(("linalg.", "iree_linalg_ext.")) or not op.regions or op.name in _FREE:
            continue
        points = _points(op)
        if points is None:
            return None
        total += points * sum(1 for inner in _inside(op) if _is_float(inner) and _ARITHMETIC.match(inner.name))
    return total


def _is_float(op: Any) -> bool:
    return len(op.results) == 1 and isinstance(op.results[0].type, mlir.FloatType)


def _points(op: Any) -> int | None:
    """How often the body of an op runs."""
    shapes = [mlir.RankedTensorType(v.type).shape for v in op.operands if isinstance(v.type, mlir.RankedTensorType)]
    dynamic = mlir.ShapedType.get_dynamic_size()
    if any(size == dynamic for shape in shapes for size in shape):
        return None
    if op.name == "iree_linalg_ext.scatter":
        return int(prod(shapes[0]))
    if "indexing_maps" not in op.attributes:
        return None
    sizes: dict[int, int] = {}
    tensors = [v.type for v in op.operands]
    for type_, attribute in zip(tensors, op.attributes["indexing_maps"], strict=True):
        if not isinstance(type_, mlir.RankedTensorType):
            continue
        for size, expression in zip(type_.shape, attribute.value.results, strict=True):
            if (match := _DIMENSION.fullmatch(str(expression))) is not None:
                sizes[int(match[1])] = size
    return prod(sizes.values()) if len(sizes) == attribute.value.n_dims else None
