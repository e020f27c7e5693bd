"""gather and scatter_add: rows by integer index, and sums into rows."""

from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.errors import DtypeError, ShapeError
from trainc.ir.builder import emit
from trainc.ir.registry import OpDef, register
from trainc.ir.tensor import Aval, Tensor

Array = npt.NDArray[Any]


def _check_ids(ids: Aval) -> None:
    if ids.dtype != "i32":
        raise DtypeError(f"expected i32 indices, got {ids.dtype}")


def _infer_gather(table: Aval, ids: Aval, *, axis: int) -> list[Aval]:
    _check_ids(ids)
    if not 0 <= axis < len(table.shape):
        raise ShapeError(f"expected an axis in [0, {len(table.shape)}), got {axis}")
    return [Aval(table.shape[:axis] + ids.shape + table.shape[axis + 1 :], table.dtype)]


GATHER = register(
    OpDef(
        "gather",
        ("table", "ids"),
        _infer_gather,
        attributes=("axis",),
        reference=lambda table, ids, *, axis: np.take(table, ids, axis=axis),
    )
)


def gather(table: Tensor, ids: Tensor, axis: int = 0) -> Tensor:
    """Return slices of an axis by i32 index.

    Args:
        table: Any shape.
        ids: Indices in [0, table.shape[axis]); the caller checks them before anything runs.
        axis: The indexed axis, replaced by the dimensions of ids.
    """
    return emit(GATHER, [table, ids], axis=axis)[0]


def _infer_scatter_add(updates: Aval, ids: Aval, *, rows: int) -> list[Aval]:
    _check_ids(ids)
    if len(ids.shape) != 1 or len(updates.shape) != 2 or updates.shape[0] != ids.shape[0]:
        raise ShapeError(f"expected updates (N, D) and ids (N), got {updates.shape} and {ids.shape}")
    return [Aval((rows, updates.shape[1]), updates.dtype)]


def _scatter_add_reference(updates: Array, ids: Array, *, rows: int) -> Array:
    out = np.zeros((rows, updates.shape[1]), updates.dtype)
    np.add.at(out, ids, updates)
    return out


SCATTER_ADD = register(
    OpDef("scatter_add", ("updates", "ids"), _infer_scatter_add, attributes=("rows",), reference=_scatter_add_reference)
)


def scatter_add(updates: Tensor, ids: Tensor, rows: int) -> Tensor:
    """Sum update rows into the rows their ids name, in ascending order of position.

    Args:
        updates: Shape (N, D).
        ids: Shape (N,), i32, in [0, rows).
        rows: Rows of the result (rows, D), zero where no id points.
    """
    return emit(SCATTER_ADD, [updates, ids], rows=rows)[0]
