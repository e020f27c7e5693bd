"""mlp_inference_sessions: several batches of rows through one two-layer model."""

from typing import Any

import numpy as np

from trainc.core.errors import ArgumentTypeError, ShapeError
from trainc.core.modes import resolve_mode
from trainc.frontends.arrays import Float32, float32_input, require_shape
from trainc.frontends.functional.arguments import matrix
from trainc.frontends.functional.kernels import functional_kernel


def mlp_inference_sessions(
    inputs: Any, weight1: Any, bias1: Any, weight2: Any, bias2: Any, numeric_mode: str | None = None
) -> Float32:
    """Compute relu(x @ weight1.T + bias1) @ weight2.T + bias2 for the rows of every session (spec section 9).

    The default mode is the library's; it becomes "identical" in the version that offers that mode.

    Args:
        inputs: List of float32 arrays (rows_i, width), one a session; a session may have no rows.
        weight1: float32 (hidden, width).
        bias1: float32 (hidden,).
        weight2: float32 (outputs, hidden).
        bias2: float32 (outputs,).
        numeric_mode: Numeric mode, or None for the default.

    Returns:
        float32 (sum of rows_i, outputs): the sessions' results one after the other, in their order.

    Raises:
        ArgumentTypeError: `inputs` is no list of arrays. A TypeError.
        UsageError: The mode is unknown. A ValueError.
        ShapeError: A shape does not fit, or an array is not C-contiguous. A ValueError.
        DtypeError: An array is not of float32. A TypeError.
        UnsupportedError: The mode is not available.
    """
    mode = resolve_mode(numeric_mode)
    weight1_HW = matrix("weight1", weight1, "(hidden, width)")
    hidden, width = weight1_HW.shape
    weight2_OH = matrix("weight2", weight2, "(outputs, hidden)", columns=hidden)
    outputs = weight2_OH.shape[0]
    bias1_H, bias2_O = float32_input("bias1", bias1), float32_input("bias2", bias2)
    require_shape("bias1", bias1_H, (hidden,), "(hidden,)")
    require_shape("bias2", bias2_O, (outputs,), "(outputs,)")
    x_NW = np.concatenate([np.empty((0, width), np.float32), *_sessions(inputs, width)])
    if len(x_NW) == 0:
        return np.empty((0, outputs), np.float32)

    def traced() -> Any:
        from trainc.frontends.functional.tracing.mlp import trace_mlp

        return trace_mlp(width, hidden, outputs)

    kernel = functional_kernel("mlp", mode, traced, width=width, hidden=hidden, outputs=outputs)
    weights = {"weight1": weight1_HW, "bias1": bias1_H, "weight2": weight2_OH, "bias2": bias2_O}
    return kernel.call("mlp", {"x": x_NW, **weights})["y"]


def _sessions(inputs: Any, width: int) -> list[Float32]:
    if not isinstance(inputs, (list, tuple)):
        raise ArgumentTypeError(f"inputs must be a list of arrays, one a session, got {type(inputs).__name__}")
    found = []
    for index, item in enumerate(inputs):
        name = f"inputs[{index}]"
        array = float32_input(name, item, allow_empty=True)
        if array.ndim != 2 or array.shape[1] != width:
            raise ShapeError(f"{name} must have shape (rows, width) with width {width}, got {array.shape}")
        found.append(array)
    return found
