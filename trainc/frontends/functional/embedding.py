"""embedding_forward and embedding_backward: rows of a table by index, and sums into them."""

from typing import Any

import numpy as np

from trainc.core import checks
from trainc.core.errors import ConfigError, ShapeError
from trainc.core.modes import resolve_mode
from trainc.frontends.arrays import Float32, int32_input, require_shape
from trainc.frontends.functional.arguments import matrix
from trainc.frontends.functional.kernels import functional_kernel

_MOST_ROWS = 2**31


def embedding_forward(weight: Any, ids: Any, numeric_mode: str | None = None) -> Float32:
    """Rows of a table: `weight[ids]`. They are copied, so their bits are the table's in every mode.

    Args:
        weight: float32 (V, D).
        ids: Integers (N,) in [0, V).
        numeric_mode: Numeric mode, or None for the default.

    Returns:
        float32 (N, D).

    Raises:
        UsageError: An id is no integer or out of range, or the mode is unknown. A ValueError.
        ShapeError: A shape does not fit, or an array is empty or not C-contiguous. A ValueError.
        DtypeError: `weight` is no array of float32. A TypeError.
        UnsupportedError: The mode is not available.
    """
    resolve_mode(numeric_mode)
    weight_VD = matrix("weight", weight, "(V, D)")
    ids_N = int32_input("ids", ids, low=0, high=weight_VD.shape[0])
    require_shape("ids", ids_N, (None,), "(N,)")
    return np.take(weight_VD, ids_N, axis=0)


def embedding_backward(dy: Any, ids: Any, vocab: int, numeric_mode: str | None = None) -> Float32:
    """Gradient of `embedding_forward` with respect to the table; rows of one id are added in ascending order.

    Args:
        dy: float32 (N, D), the gradient of its result.
        ids: Integers (N,) in [0, vocab).
        vocab: Rows of the table.
        numeric_mode: Numeric mode, or None for the default.

    Returns:
        float32 (vocab, D), +0.0 where no id points.

    Raises:
        UsageError: An id is no integer or out of range, or the mode is unknown. A ValueError.
        ConfigError: `vocab` is no integer from 1 to 2**31. A ValueError.
        ShapeError: The numbers of rows differ, or an array is empty or not C-contiguous. A ValueError.
        DtypeError: `dy` is no array of float32. A TypeError.
        UnsupportedError: The mode is not available.
    """
    mode = resolve_mode(numeric_mode)
    rows = checks.integer("vocab", vocab, 1)
    if rows > _MOST_ROWS:
        raise ConfigError(f"vocab must be at most {_MOST_ROWS}, what int32 ids can name, got {rows}")
    dy_ND = matrix("dy", dy, "(N, D)")
    ids_N = int32_input("ids", ids, low=0, high=rows)
    if ids_N.shape != dy_ND.shape[:1]:
        raise ShapeError(f"ids must have shape (N,) = ({dy_ND.shape[0]},), one for each row of dy, got {ids_N.shape}")
    width = dy_ND.shape[1]

    def traced() -> Any:
        from trainc.frontends.functional.tracing.embedding import trace_embedding_backward

        return trace_embedding_backward(rows, width)

    kernel = functional_kernel("embedding_backward", mode, traced, rows=rows, width=width)
    return kernel.call("embedding_backward", {"dy": dy_ND, "ids": ids_N})["d_weight"]
