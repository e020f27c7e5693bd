"""Small helpers that build linalg from index notation."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from trainc.ir.mlir import arith, linalg, mlir, tensor


def affine_maps(terms: Sequence[str], loops: str) -> Any:
    """Return the indexing maps that read each term inside loops named by letters."""
    maps = []
    for term in terms:
        dims = [mlir.AffineExpr.get_dim(loops.index(letter)) for letter in term]
        maps.append(mlir.AffineMapAttr.get(mlir.AffineMap.get(len(loops), 0, dims)))
    return mlir.ArrayAttr.get(maps)


def iterators(parallel: int, reduction: int) -> Any:
    """Return iterator types, parallel ones first."""
    names = ["parallel"] * parallel + ["reduction"] * reduction
    return mlir.ArrayAttr.get([mlir.Attribute.parse(f"#linalg.iterator_type<{name}>") for name in names])


def empty(type_: Any) -> Any:
    """Return a tensor.empty of a static tensor type."""
    ranked = mlir.RankedTensorType(type_)
    return tensor.empty(list(ranked.shape), ranked.element_type)


def filled(type_: Any, value: float) -> Any:
    """Return a tensor of a type with one value everywhere."""
    element = mlir.RankedTensorType(type_).element_type
    return linalg.fill(arith.constant(element, value), outs=[empty(type_)])


def dense(type_: Any, value: np.ndarray[Any, Any]) -> Any:
    """Return an arith.constant of given elements, rounded to the type's element type."""
    ranked = mlir.RankedTensorType(type_)
    numpy_dtype = {"f32": np.float32, "f64": np.float64, "i32": np.int32}[str(ranked.element_type)]
    rounded = np.asarray(value, numpy_dtype, order="C")
    attribute = mlir.DenseElementsAttr.get(rounded, type=ranked.element_type, shape=list(ranked.shape))
    return arith.ConstantOp(type_, attribute).result


def compute_barrier(value: Any) -> Any:
    """Return the same tensor behind IREE's barrier against fusion and moving transposes."""
    started = mlir.Operation.create("iree_tensor_ext.compute_barrier.start", results=[value.type], operands=[value])
    return started.results[0]
