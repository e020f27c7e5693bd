"""Numeric modes and precisions: their names, the defaults, and the checks that every request goes through."""

from trainc.core.errors import UnsupportedError, UsageError

NUMERIC_MODES: tuple[str, ...] = ("deterministic", "fast", "identical")
DEFAULT_MODE = "deterministic"
PRECISIONS: tuple[str, ...] = ("f32", "bf16")
DEFAULT_PRECISION = "f32"


def resolve_mode(mode: str | None) -> str:
    """Returns the numeric mode to use for a request.

    Args:
        mode: One of `NUMERIC_MODES`, or None for `DEFAULT_MODE`.

    Raises:
        UsageError: `mode` is not a known mode.
        UnsupportedError: `mode` is known but cannot be compiled by this version.
    """
    if mode is None:
        return DEFAULT_MODE
    if not isinstance(mode, str) or mode not in NUMERIC_MODES:
        raise UsageError(f"numeric_mode must be one of {', '.join(NUMERIC_MODES)} or None, got {mode!r}")
    if mode == "identical":
        raise UnsupportedError(
            "numeric_mode 'identical' is not available in this version; use 'deterministic' (the default) or 'fast'"
        )
    return mode


def resolve_numerics(mode: str | None, precision: str) -> str:
    """Returns the numeric mode to use for a request that also names a precision.

    Args:
        mode: One of `NUMERIC_MODES`, or None for the precision's own: `DEFAULT_MODE` for "f32", "fast" for "bf16".
        precision: One of `PRECISIONS`. With "bf16" the operands of large matrix products are rounded to bfloat16.

    Raises:
        UsageError: A name is not known, or "bf16" is asked for in another mode than "fast".
        UnsupportedError: As for `resolve_mode`.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    if precision == DEFAULT_PRECISION:
        return resolve_mode(mode)
    if mode not in (None, "fast"):
        raise UsageError(
            f"precision {precision!r} exists in numeric mode 'fast' only, got mode {mode!r}; leave the mode out, or "
            f"use precision {DEFAULT_PRECISION!r}"
        )
    return "fast"
