"""Running a program on the NumPy references, for tests, self-tests and reading."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.errors import ShapeError, VerifyError
from trainc.ir.decompose import decompose_function
from trainc.ir.mlir import DYNAMIC, attributes_of, dtype_of, entry_block, scope, shape_of
from trainc.ir.program import Program, ports
from trainc.ir.region import evaluate_map
from trainc.ir.registry import is_train_op, lookup, op_names

Array = npt.NDArray[Any]


def interpret(
    program: Program,
    function: str,
    inputs: Sequence[npt.ArrayLike],
    dtype: Any = np.float64,
    *,
    primitives: bool = False,
) -> list[Array]:
    """Run one function of a program.

    Args:
        program: Left unchanged.
        function: Its name.
        inputs: One array an argument.
        dtype: NumPy float type that every floating-point value is computed in.
        primitives: Decompose every layer op first, so that the decompositions are what runs; otherwise a
            layer op runs its naive reference, and only ops without one are decomposed.

    Returns:
        One array a result, floats in `dtype`.

    Raises:
        ShapeError: An input's shape is not its argument's.
    """
    copy = program.clone()
    op = copy.function(function)
    dtypes = {"f32": dtype, "f64": dtype, "bf16": dtype, "i1": np.bool_, "i32": np.int32, "i64": np.int64}
    with scope():
        keep = frozenset() if primitives else frozenset(n for n in op_names() if lookup(n).reference is not None)
        decompose_function(op, keep)
        arguments, _ = ports(op)
        arrays = [np.asarray(x).astype(dtypes[p.aval.dtype]) for x, p in zip(inputs, arguments, strict=True)]
        for array, port in zip(arrays, arguments, strict=True):
            if not _fits(array.shape, port.aval.shape):
                raise ShapeError(
                    f"{function}: argument {port.name} should have shape {port.aval.shape}, got {array.shape}"
                )
        return _run(entry_block(op), arrays, dtypes)


def _run(block: Any, inputs: Sequence[Array], dtypes: dict[str, Any]) -> list[Array]:
    values: dict[Any, Array] = dict(zip(block.arguments, inputs, strict=True))
    uses = Counter(v for item in block.operations for v in item.operation.operands)
    for item in block.operations:
        op = item.operation
        operands = [values[v] for v in op.operands]
        if op.name == "func.return":
            return operands
        if not is_train_op(op):
            raise VerifyError(f"expected train ops only, got {op.name}; interpret a program before it is lowered")
        results = _apply(op, operands, dtypes)
        for value, array in zip(op.results, results, strict=True):
            if not _fits(array.shape, shape_of(value)):
                raise ShapeError(f"{op.name}: its reference gave shape {array.shape}, its type says {shape_of(value)}")
            if value in uses:
                values[value] = array.astype(dtypes[dtype_of(value)], copy=False)
        for value in op.operands:  # a large model's values do not all fit into memory
            uses[value] -= 1
            if not uses[value]:
                del values[value]
    raise VerifyError("expected the function to end in func.return")


def _fits(shape: Sequence[int], wanted: Sequence[int]) -> bool:
    """Return whether an array's shape is one that a type allows."""
    return len(shape) == len(wanted) and all(w in (DYNAMIC, n) for n, w in zip(shape, wanted, strict=True))


def _apply(op: Any, operands: Sequence[Array], dtypes: dict[str, Any]) -> Sequence[Array]:
    if op.name == "train.map":
        return evaluate_map(op, operands, dtypes)
    definition = lookup(op.name)
    assert definition.reference is not None
    produced = definition.reference(*operands, **attributes_of(op))
    return produced if isinstance(produced, tuple) else (np.asarray(produced),)
