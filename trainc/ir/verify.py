"""Checking that a program keeps the rules of the train dialect; run before and after every pass."""

from typing import Any

from trainc.core.errors import TraincError, VerifyError
from trainc.ir.locations import Site
from trainc.ir.mlir import (
    attributes_of,
    dtype_name,
    dtype_of,
    entry_block,
    functions,
    location_number,
    mlir,
    scope,
    shape_of,
)
from trainc.ir.program import Program
from trainc.ir.registry import is_train_op, lookup
from trainc.ir.spec import parse_spec
from trainc.ir.tensor import Aval


def verify(program: Program) -> None:
    """Check every op of a program.

    Raises:
        VerifyError: MLIR's own rules are broken, or an op of the train dialect is unknown, has the wrong operands
            or attributes, or results that its shape rule does not give. The message names the op and its site.
    """
    with scope():
        try:
            program.module.operation.verify()
        except mlir.MLIRError as error:
            raise VerifyError(f"expected valid MLIR; the verifier said: {error}") from None
        for function in functions(program.module):
            for item in entry_block(function).operations:
                if is_train_op(item.operation):
                    _verify_op(program, item.operation)


def _verify_op(program: Program, op: Any) -> None:
    site = program.table.get(location_number(op))
    definition = lookup(op.name)
    try:
        _check_attributes(op, definition.attributes)
        count, wanted = len(op.operands), len(definition.operands)
        if count < wanted - definition.variadic or (count > wanted and not definition.variadic):
            raise VerifyError(f"expected operands {definition.operands}, got {count}")
        if definition.region:
            _check_region(op)
            return
        inferred = definition.infer(*(Aval(shape_of(v), dtype_of(v)) for v in op.operands), **attributes_of(op))
        actual = [Aval(shape_of(v), dtype_of(v)) for v in op.results]
        if inferred != actual:
            shown = [", ".join(map(str, avals)) for avals in (inferred, actual)]
            raise VerifyError(f"expected results {shown[0]}, got {shown[1]}")
    except TraincError as error:
        raise VerifyError(f"{op.name}: {error}{_at(site)}") from None


def _at(site: Site | None) -> str:
    return f"; at {site}" if site is not None else ""


def _check_attributes(op: Any, names: tuple[str, ...]) -> None:
    found = set(op.attributes)
    if found != set(names):
        raise VerifyError(f"expected attributes {sorted(names)}, got {sorted(found)}")


def _check_region(op: Any) -> None:
    """Check a map: index notation against shapes, block arguments against operands, yields against results."""
    spec = parse_spec(op.attributes["spec"].value)
    lookup(op.name).infer(*(Aval(shape_of(v), dtype_of(v)) for v in op.operands), **attributes_of(op))
    sizes = tuple(op.attributes["sizes"])
    if len(op.regions) != 1 or len(op.regions[0].blocks) != 1 or spec.reduced:
        raise VerifyError("expected one region of one block and no summed index")
    block = op.regions[0].blocks[0]
    if [dtype_name(a.type) for a in block.arguments] != [dtype_of(v) for v in op.operands]:
        raise VerifyError("expected one block argument an operand, of its dtype")
    operations = [item.operation for item in block.operations]
    if not operations or operations[-1].name != "train.yield":
        raise VerifyError("expected the region to end in train.yield")
    yielded = [dtype_name(v.type) for v in operations[-1].operands]
    results = [(shape_of(v), dtype_of(v)) for v in op.results]
    if results != [(sizes, dtype) for dtype in yielded]:
        raise VerifyError(f"expected results of shape {sizes} and dtypes {yielded}, got {results}")
    for inner in operations:
        if not inner.name.startswith(("arith.", "math.", "train.index", "train.yield")):
            raise VerifyError(f"expected scalar arith and math ops in the region, got {inner.name}")
