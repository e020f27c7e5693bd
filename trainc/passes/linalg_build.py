"""Small helpers that build linalg from index notation."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from trainc.ir.mlir import DYNAMIC, arith, linalg, mlir, shape_of, shape_of_type, tensor


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


def empty(type_: Any, sources: Sequence[Any]) -> Any:
    """Return a tensor.empty of a type.

    Args:
        type_: Tensor type.
        sources: Values of which one has the dynamic size, if the type has one.
    """
    element = mlir.RankedTensorType(type_).element_type
    sizes = [_dynamic_size(sources) if n == DYNAMIC else n for n in shape_of_type(type_)]
    return tensor.empty(sizes, element)


def _dynamic_size(sources: Sequence[Any]) -> Any:
    """Return the dynamic size, which is the same wherever it occurs in a function."""
    source, axis = next((s, shape_of(s).index(DYNAMIC)) for s in sources if DYNAMIC in shape_of(s))
    return tensor.dim(source, arith.constant(mlir.IndexType.get(), axis))


def filled(type_: Any, value: float, sources: Sequence[Any]) -> Any:
    """Return a tensor of a type with one value everywhere; `sources` as for `empty`."""
    element = mlir.RankedTensorType(type_).element_type
    return linalg.fill(arith.constant(element, value), outs=[empty(type_, sources)])


def dense(type_: Any, value: np.ndarray[Any, Any]) -> Any:
    """Return an arith.constant of given elements, rounded to the type's element type."""
    ranked = mlir.RankedTensorType(type_)
    numpy_dtype = {"f32": np.float32, "f64": np.float64, "i32": np.int32}[str(ranked.element_type)]
    rounded = np.asarray(value, numpy_dtype, order="C")
    attribute = mlir.DenseElementsAttr.get(rounded, type=ranked.element_type, shape=list(ranked.shape))
    return arith.ConstantOp(type_, attribute).result


BARRIER = "iree_tensor_ext.compute_barrier.start"
"""The op of `compute_barrier`."""


def compute_barrier(value: Any) -> Any:
    """Return the same tensor behind IREE's barrier against fusion and moving transposes."""
    dims = [_dynamic_size([value]) for size in shape_of(value) if size == DYNAMIC]
    return mlir.Operation.create(BARRIER, [value.type], [value, *dims]).results[0]
