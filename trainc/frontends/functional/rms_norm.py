"""rms_norm_forward and rms_norm_backward: rows divided by their root mean square, times a weight."""

from typing import Any

from trainc.core import checks
from trainc.core.errors import ShapeError
from trainc.core.modes import resolve_mode
from trainc.frontends.arrays import Float32, float32_input, require_shape
from trainc.frontends.functional.arguments import rows
from trainc.frontends.functional.kernels import functional_kernel


def rms_norm_forward(x: Any, weight: Any, eps: float, numeric_mode: str | None = None) -> Float32:
    """Divide rows by their root mean square: weight * x / sqrt(mean(x**2) + eps) (spec section 2).

    Args:
        x: float32 (M, D), or with more leading dimensions.
        weight: float32 (D,).
        eps: Added to the mean square; finite, at least 0, rounded to float32.
        numeric_mode: Numeric mode, or None for the default.

    Returns:
        float32 in the shape of x.

    Raises:
        ConfigError: `eps` is impossible. A ValueError.
        UsageError: The mode is unknown. A ValueError.
        ShapeError: A shape does not fit, or an array is empty or not C-contiguous. A ValueError.
        DtypeError: An array is not of float32. A TypeError.
        UnsupportedError: The mode is not available.
    """
    mode = resolve_mode(numeric_mode)
    rounded = checks.float32_at_least_0("eps", eps)
    x_MD, weight_D = _operands(x, weight)
    width = weight_D.shape[0]

    def traced() -> Any:
        from trainc.frontends.functional.tracing.rms_norm import trace_rms_norm_forward

        return trace_rms_norm_forward(width, rounded)

    kernel = functional_kernel("rms_norm_forward", mode, traced, width=width, eps=rounded)
    y_MD = kernel.call("rms_norm_forward", {"x": x_MD.reshape(-1, width), "weight": weight_D})["y"]
    return y_MD.reshape(x_MD.shape)


def rms_norm_backward(
    dy: Any, x: Any, weight: Any, eps: float, numeric_mode: str | None = None
) -> tuple[Float32, Float32]:
    """Gradients of `rms_norm_forward` (spec section 9).

    Args:
        dy: float32 in the shape of x, the gradient of its result.
        x: float32 (M, D), or with more leading dimensions.
        weight: float32 (D,).
        eps: As given to the forward function.
        numeric_mode: Numeric mode, or None for the default.

    Returns:
        The gradients of x, in its shape, and of weight (D,).

    Raises:
        ConfigError: `eps` is impossible. A ValueError.
        UsageError: The mode is unknown. A ValueError.
        ShapeError: A shape does not fit, or an array is empty or not C-contiguous. A ValueError.
        DtypeError: An array is not of float32. A TypeError.
        UnsupportedError: The mode is not available.
    """
    mode = resolve_mode(numeric_mode)
    rounded = checks.float32_at_least_0("eps", eps)
    x_MD, weight_D = _operands(x, weight)
    dy_MD = float32_input("dy", dy)
    if dy_MD.shape != x_MD.shape:
        raise ShapeError(f"dy must have the shape of x, {x_MD.shape}, got {dy_MD.shape}")
    width = weight_D.shape[0]

    def traced() -> Any:
        from trainc.frontends.functional.tracing.rms_norm import trace_rms_norm_backward

        return trace_rms_norm_backward(width, rounded)

    kernel = functional_kernel("rms_norm_backward", mode, traced, width=width, eps=rounded)
    operands = {"dy": dy_MD.reshape(-1, width), "x": x_MD.reshape(-1, width), "weight": weight_D}
    found = kernel.call("rms_norm_backward", operands)
    return found["d_x"].reshape(x_MD.shape), found["d_weight"]


def _operands(x: Any, weight: Any) -> tuple[Float32, Float32]:
    x_MD = rows("x", x, "(..., D)")
    weight_D = float32_input("weight", weight)
    require_shape("weight", weight_D, x_MD.shape[-1:], "(D,)")
    return x_MD, weight_D
