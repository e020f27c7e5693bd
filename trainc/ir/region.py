"""Evaluating the scalar region of a map with NumPy, every element at once."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.errors import VerifyError
from trainc.ir.mlir import dtype_name
from trainc.ir.spec import parse_spec

Array = npt.NDArray[Any]


def _unsigned(x: Array) -> Array:
    return x.view(np.dtype(f"u{x.dtype.itemsize}"))


def _on_unsigned(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda a, b: function(_unsigned(a), _unsigned(b)).view(a.dtype)


_FLOAT_PREDICATES: dict[int, Callable[[Array, Array], Array]] = {
    1: np.equal,
    2: np.greater,
    3: np.greater_equal,
    4: np.less,
    5: np.less_equal,
    13: np.not_equal,
}
_INT_PREDICATES: dict[int, Callable[[Array, Array], Array]] = {
    0: np.equal,
    1: np.not_equal,
    2: np.less,
    3: np.less_equal,
    4: np.greater,
    5: np.greater_equal,
}

_FUNCTIONS: dict[str, Callable[..., Array]] = {
    "arith.addf": np.add,
    "arith.subf": np.subtract,
    "arith.mulf": np.multiply,
    "arith.divf": np.divide,
    "arith.negf": np.negative,
    "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum,
    "arith.addi": np.add,
    "arith.subi": np.subtract,
    "arith.muli": np.multiply,
    "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor,
    "arith.shli": np.left_shift,
    "arith.shrui": _on_unsigned(np.right_shift),
    "arith.select": np.where,
    "math.exp": np.exp,
    "math.log": np.log,
    "math.log1p": np.log1p,
    "math.expm1": np.expm1,
    "math.sqrt": np.sqrt,
    "math.rsqrt": lambda x: 1.0 / np.sqrt(x),
    "math.sin": np.sin,
    "math.cos": np.cos,
    "math.tanh": np.tanh,
    "math.floor": np.floor,
    "math.absf": np.abs,
    "math.fma": lambda a, b, c: a * b + c,
}

_CASTS = ("arith.extf", "arith.truncf", "arith.sitofp", "arith.fptosi", "arith.extsi", "arith.trunci")
_UNSIGNED_CASTS = ("arith.uitofp", "arith.extui")


def evaluate_map(op: Any, operands: Sequence[Array], dtypes: dict[str, Any]) -> list[Array]:
    """Evaluate a map.

    Args:
        op: The `train.map`.
        operands: One array an operand.
        dtypes: NumPy dtype of each dtype name (floats may be mapped to a wider one).

    Returns:
        One array a result.
    """
    spec = parse_spec(op.attributes["spec"].value)
    known = dict(zip(spec.output, op.attributes["sizes"], strict=True))
    for array, term in zip(operands, spec.operands, strict=True):
        known.update(zip(term, array.shape, strict=True))
    sizes = [known[letter] for letter in spec.output]
    block = op.regions[0].blocks[0]
    values: dict[Any, Array] = {
        argument: _spread(array, term, spec.output)
        for argument, array, term in zip(block.arguments, operands, spec.operands, strict=True)
    }
    for inner in block.operations:
        operation = inner.operation
        if operation.name == "train.yield":
            return [np.array(np.broadcast_to(values[v], sizes)) for v in operation.operands]
        results = _evaluate(operation, [values[v] for v in operation.operands], sizes, dtypes)
        values.update(zip(operation.results, results, strict=True))
    raise VerifyError("expected a train.map region to end in train.yield")


def _spread(array: Array, term: str, output: str) -> Array:
    """Transpose an operand to output order and give it size-1 axes where it has none."""
    order = [term.index(letter) for letter in output if letter in term]
    moved = np.transpose(array, order)
    return moved.reshape([array.shape[term.index(letter)] if letter in term else 1 for letter in output])


def _evaluate(op: Any, x: Sequence[Array], sizes: Sequence[int], dtypes: dict[str, Any]) -> list[Array]:
    name = str(op.name)
    dtype = dtypes[dtype_name(op.results[0].type)]
    match name:
        case "arith.constant":
            return [np.full([1] * len(sizes), op.attributes["value"].value, dtype)]
        case "train.index":
            dim = op.attributes["dim"].value
            return [np.arange(sizes[dim], dtype=dtype).reshape([-1 if i == dim else 1 for i in range(len(sizes))])]
        case "arith.cmpf":
            return [_FLOAT_PREDICATES[op.attributes["predicate"].value](*x)]
        case "arith.cmpi":
            return [_INT_PREDICATES[op.attributes["predicate"].value](*x)]
    if name in _CASTS:
        return [x[0].astype(dtype)]
    if name in _UNSIGNED_CASTS:
        return [(x[0] if x[0].dtype == np.bool_ else _unsigned(x[0])).astype(dtype)]
    if name in _FUNCTIONS:
        return [np.asarray(_FUNCTIONS[name](*x))]
    raise VerifyError(f"expected a scalar op that the interpreter knows inside train.map, got {name}")
