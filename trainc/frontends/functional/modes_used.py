"""numeric_mode_used and vendor_used: what the compiled code that is loaded says about itself."""

from typing import Any

from trainc.core.modes import resolve_mode
from trainc.frontends.functional.kernels import functional_kernel
from trainc.runtime.program import Program

_VENDORS = {
    "local-task": "cpu",
    "local-sync": "cpu",
    "cuda": "cuda",
    "hip": "hip",
    "metal": "metal",
    "vulkan": "vulkan",
}


def numeric_mode_used(numeric_mode: str | None = None) -> str:
    """Returns the numeric mode that functions run in when they are asked for one, read from the compiled code.

    Args:
        numeric_mode: Numeric mode, or None for the default.

    Raises:
        UsageError: The mode is unknown.
        UnsupportedError: The mode is not available.
    """
    return _kernel(numeric_mode).manifest.numeric_mode


def vendor_used(numeric_mode: str | None = None) -> str:
    """Returns the kind of device that functions run on, read from the compiled code.

    Args:
        numeric_mode: Numeric mode, or None for the default.

    Returns:
        "cpu", "cuda", "hip", "metal" or "vulkan".

    Raises:
        UsageError: The mode is unknown.
        UnsupportedError: The mode is not available.
    """
    kernel = _kernel(numeric_mode)
    return _VENDORS[kernel.manifest.targets[kernel.device.name].driver]


def _kernel(numeric_mode: str | None) -> Program:
    """Return a kernel that is quick to compile; it is made in the way of all others."""

    def traced() -> Any:
        from trainc.frontends.functional.tracing.embedding import trace_embedding_backward

        return trace_embedding_backward(1, 1)

    return functional_kernel("embedding_backward", resolve_mode(numeric_mode), traced, rows=1, width=1)
