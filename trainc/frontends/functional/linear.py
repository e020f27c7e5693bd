"""linear_forward and linear_backward: rows times a transposed matrix."""

from typing import Any

from trainc.core.errors import ShapeError
from trainc.core.modes import resolve_mode
from trainc.frontends.arrays import Float32, float32_input
from trainc.frontends.functional.arguments import matrix, rows
from trainc.frontends.functional.kernels import functional_kernel


def linear_forward(a: Any, weight: Any, numeric_mode: str | None = None) -> Float32:
    """Multiply rows with a matrix: a @ weight.T (spec section 9). A row's result depends on that row alone.

    Args:
        a: float32 (M, K), or with more leading dimensions.
        weight: float32 (N, K).
        numeric_mode: Numeric mode, or None for the default.

    Returns:
        float32 (M, N), or with the leading dimensions of a.

    Raises:
        UsageError: The mode is unknown. A ValueError.
        ShapeError: A shape does not fit, or an array is empty or not C-contiguous. A ValueError.
        DtypeError: An array is not of float32. A TypeError.
        UnsupportedError: The mode is not available.
    """
    mode = resolve_mode(numeric_mode)
    a_MK = rows("a", a, "(..., K)")
    inputs = a_MK.shape[-1]
    weight_NK = matrix("weight", weight, "(N, K)", columns=inputs)
    outputs = weight_NK.shape[0]

    def traced() -> Any:
        from trainc.frontends.functional.tracing.linear import trace_linear_forward

        return trace_linear_forward(inputs, outputs)

    kernel = functional_kernel("linear_forward", mode, traced, inputs=inputs, outputs=outputs)
    c_MN = kernel.call("linear_forward", {"a": a_MK.reshape(-1, inputs), "weight": weight_NK})["c"]
    return c_MN.reshape(*a_MK.shape[:-1], outputs)


def linear_backward(dc: Any, a: Any, weight: Any, numeric_mode: str | None = None) -> tuple[Float32, Float32]:
    """Gradients of `linear_forward`: dc @ weight and dc.T @ a (spec section 9).

    Args:
        dc: float32 (M, N), the gradient of its result.
        a: float32 (M, K); both may have more leading dimensions.
        weight: float32 (N, K).
        numeric_mode: Numeric mode, or None for the default.

    Returns:
        The gradients of a, in its shape, and of weight (N, K).

    Raises:
        UsageError: The mode is unknown. A ValueError.
        ShapeError: A shape does not fit, or an array is empty or not C-contiguous. A ValueError.
        DtypeError: An array is not of float32. A TypeError.
        UnsupportedError: The mode is not available.
    """
    mode = resolve_mode(numeric_mode)
    a_MK = rows("a", a, "(..., K)")
    inputs = a_MK.shape[-1]
    weight_NK = matrix("weight", weight, "(N, K)", columns=inputs)
    outputs = weight_NK.shape[0]
    dc_MN = float32_input("dc", dc)
    if dc_MN.shape != (*a_MK.shape[:-1], outputs):
        raise ShapeError(f"dc must have shape (..., N) = {(*a_MK.shape[:-1], outputs)}, got {dc_MN.shape}")

    def traced() -> Any:
        from trainc.frontends.functional.tracing.linear import trace_linear_backward

        return trace_linear_backward(inputs, outputs)

    kernel = functional_kernel("linear_backward", mode, traced, inputs=inputs, outputs=outputs)
    operands = {"dc": dc_MN.reshape(-1, outputs), "a": a_MK.reshape(-1, inputs), "weight": weight_NK}
    found = kernel.call("linear_backward", operands)
    return found["d_a"].reshape(a_MK.shape), found["d_weight"]
