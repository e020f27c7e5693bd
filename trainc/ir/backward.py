"""Reverse-mode differentiation over hand-written rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainc.core.errors import ShapeError, UnsupportedError, VerifyError
from trainc.ir import builder
from trainc.ir.mlir import attributes_of, location_number
from trainc.ir.ops.add import add
from trainc.ir.primitives import fill
from trainc.ir.registry import Call, lookup
from trainc.ir.tensor import Tensor


def backward(output: Tensor, wrt: Sequence[Tensor], d_output: Tensor | None = None) -> list[Tensor]:
    """Emit the gradient of a value with respect to others.

    Only ops on a path from `wrt` to `output` are differentiated, and each rule is told which of its operands
    need a gradient, so a frozen weight costs nothing.

    Args:
        output: The value to differentiate; a scalar if `d_output` is None.
        wrt: The values to differentiate with respect to.
        d_output: Cotangent of `output` (vector-Jacobian product); None means 1.

    Returns:
        One gradient for each of `wrt`, zeros where `output` does not depend on it. Contributions to one value are
        added in the order its uses stand in the program.

    Raises:
        UnsupportedError: An op on the path has no backward rule.
    """
    if d_output is None:
        if output.shape != ():
            raise ShapeError(f"expected a scalar output or a cotangent d_output, got an output of {output.aval}")
        d_output = fill(1.0, (), output.dtype)
    ops = _block_ops(output)
    active = _active_values(ops, {t.value for t in wrt})
    gradients: dict[Any, Tensor] = {output.value: d_output}
    for op in reversed(ops):
        if any(result in active for result in op.results) and any(r in gradients for r in op.results):
            _apply_rule(op, active, gradients)
    return [gradients.get(t.value) or fill(0.0, t.shape, t.dtype) for t in wrt]


def _block_ops(output: Tensor) -> list[Any]:
    """Return the ops of the program built so far, up to the one that defines the output."""
    owner = output.value.owner
    if not hasattr(owner, "operands"):
        return []
    ops = []
    for item in owner.parent.regions[0].blocks[0].operations:
        ops.append(item.operation)
        if item.operation == owner:
            break
    return ops


def _active_values(ops: Sequence[Any], roots: set[Any]) -> set[Any]:
    active = set(roots)
    for op in ops:
        if any(operand in active for operand in op.operands):
            active.update(op.results)
    return active


def _apply_rule(op: Any, active: set[Any], gradients: dict[Any, Tensor]) -> None:
    definition = lookup(op.name)
    site = builder.current_table().get(location_number(op))
    if definition.backward is None:
        raise UnsupportedError(f"train.{definition.name} has no backward rule{f'; at {site}' if site else ''}")
    operands = tuple(Tensor(v) for v in op.operands)
    results = tuple(Tensor(v) for v in op.results)
    call = Call(operands, results, attributes_of(op), tuple(v in active for v in op.operands))
    with builder.as_layer(site.layer if site else ""):
        d_operands = definition.backward(call, [gradients.get(v) for v in op.results])
        if len(d_operands) != len(operands):
            raise VerifyError(
                f"train.{definition.name}: backward gave {len(d_operands)} gradients, not {len(operands)}"
            )
        for operand, needed, d_operand in zip(operands, call.needs, d_operands, strict=True):
            if not needed or d_operand is None:
                continue
            if d_operand.aval != operand.aval:
                raise VerifyError(f"train.{definition.name}: gradient {d_operand.aval} for operand {operand.aval}")
            later = gradients.get(operand.value)
            gradients[operand.value] = d_operand if later is None else add(d_operand, later)
