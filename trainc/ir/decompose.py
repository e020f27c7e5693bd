"""Rewriting a layer op into primitives, in place."""

from typing import Any

from trainc.core.errors import VerifyError
from trainc.ir import builder
from trainc.ir.mlir import attributes_of, entry_block
from trainc.ir.registry import OpDef, is_train_op, lookup
from trainc.ir.tensor import Tensor


def decompose_op(op: Any, definition: OpDef) -> None:
    """Replace one layer op by its decomposition."""
    assert definition.decompose is not None
    with builder.rewriting(op):
        produced = definition.decompose(*(Tensor(v) for v in op.operands), **attributes_of(op))
    tensors = produced if isinstance(produced, tuple) else (produced,)
    for position, (old, new) in enumerate(zip(op.results, tensors, strict=True)):
        if old.type != new.value.type:
            given = f"result {position} should be {old.type}, its decomposition gives {new.value.type}"
            raise VerifyError(f"train.{definition.name}: {given}")
        old.replace_all_uses_with(new.value)
    op.erase()


def decompose_function(function: Any, keep: frozenset[str] = frozenset()) -> None:
    """Decompose every layer op of a function, again and again until only primitives are left.

    Args:
        function: A function op.
        keep: Names of layer ops to leave alone.
    """
    pending = list(entry_block(function).operations)
    while pending:
        found = []
        for item in pending:
            op = item.operation
            if not is_train_op(op) or lookup(op.name).primitive or lookup(op.name).name in keep:
                continue
            found.append(op)
        if not found:
            return
        for op in found:
            decompose_op(op, lookup(op.name))
        pending = list(entry_block(function).operations)
