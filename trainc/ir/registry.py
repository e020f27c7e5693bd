"""The table of ops: what each one means, in one record.

A *layer op* has `decompose` and no lowering; a *primitive op* has a lowering in trainc.passes and no
`decompose`. Primitives are a closed set.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trainc.core.errors import VerifyError
from trainc.ir.tensor import Aval, Tensor

DIALECT = "train."


@dataclass(frozen=True)
class Call:
    """One use of an op, as its backward rule sees it.

    Attributes:
        operands: The op's operands.
        results: The op's results, saved ones included.
        attributes: The op's attributes as Python values.
        needs: Whether a gradient is wanted, by operand.
    """

    operands: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    attributes: dict[str, Any]
    needs: tuple[bool, ...]


Backward = Callable[[Call, Sequence[Tensor | None]], Sequence[Tensor | None]]


@dataclass(frozen=True)
class OpDef:
    """The meaning of one op.

    Attributes:
        name: Name without the dialect.
        operands: Operand names, in order; a last name ending in "*" stands for any number.
        attributes: Names of the required attributes.
        infer: (*avals, **attributes) -> list of result avals; raises ShapeError or DtypeError.
        reference: (*arrays, **attributes) -> array or tuple; the naive NumPy meaning in the arrays' dtype.
        decompose: (*tensors, **attributes) -> Tensor or tuple; the op in terms of primitives.
        backward: (call, d_results) -> one gradient or None for each operand.
        region: Whether the op carries a scalar region.
    """

    name: str
    operands: tuple[str, ...]
    infer: Callable[..., list[Aval]]
    attributes: tuple[str, ...] = ()
    reference: Callable[..., Any] | None = None
    decompose: Callable[..., Any] | None = None
    backward: Backward | None = None
    region: bool = False

    @property
    def primitive(self) -> bool:
        """Whether the op is lowered directly rather than decomposed."""
        return self.decompose is None

    @property
    def variadic(self) -> bool:
        """Whether the last operand may repeat."""
        return bool(self.operands) and self.operands[-1].endswith("*")


_ops: dict[str, OpDef] = {}


def register(op: OpDef) -> OpDef:
    """Add an op to the table after checking its rules' arity against its operands.

    Raises:
        VerifyError: The name is taken, or a rule takes other operands or attributes than the op has.
    """
    if op.name in _ops:
        raise VerifyError(f"expected a new op name, got {op.name!r}, which is registered already")
    rules = {"infer": op.infer, "reference": op.reference, "decompose": op.decompose}
    for rule_name, rule in rules.items():
        if rule is not None:
            _check_arity(op, rule_name, rule)
    _ops[op.name] = op
    return op


def _check_arity(op: OpDef, rule_name: str, rule: Callable[..., Any]) -> None:
    parameters = inspect.signature(rule).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    keyword = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY}
    star = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    fixed = len(op.operands) - op.variadic
    if len(positional) != fixed or star != op.variadic:
        raise VerifyError(
            f"train.{op.name}: {rule_name} should take operands {op.operands}, it takes {len(positional)}"
        )
    if keyword != set(op.attributes):
        raise VerifyError(f"train.{op.name}: {rule_name} should take attributes {op.attributes}, it takes {keyword}")


def op_names() -> list[str]:
    """Return the names of all registered ops, sorted."""
    return sorted(_ops)


def is_train_op(op: Any) -> bool:
    """Return whether an MLIR op belongs to the train dialect."""
    return str(op.name).startswith(DIALECT)


def lookup(name: str) -> OpDef:
    """Return the record of an op.

    Args:
        name: With or without the dialect prefix.

    Raises:
        VerifyError: No such op is registered.
    """
    key = name.removeprefix(DIALECT)
    if key not in _ops:
        raise VerifyError(f"expected an op of the train dialect, got train.{key}; known: {', '.join(op_names())}")
    return _ops[key]
