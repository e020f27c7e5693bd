"""Numeric modes: their names, the default, and the check every `numeric_mode=` argument goes through."""

from trainc.core.errors import UnsupportedError, UsageError

NUMERIC_MODES: tuple[str, ...] = ("deterministic", "fast", "identical")
DEFAULT_MODE = "deterministic"


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
