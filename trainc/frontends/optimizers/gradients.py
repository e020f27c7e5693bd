"""Global gradient norms, clipping by them, and the sum of microbatch gradients."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from trainc.core import accumulation, checks
from trainc.core.adamw import clip_factor
from trainc.core.errors import ArgumentTypeError, ShapeError, UnsupportedError, UsageError
from trainc.core.modes import NUMERIC_MODES, resolve_mode
from trainc.frontends.arrays import Float32, float32_in_place, float32_input, listed, require_separate
from trainc.frontends.optimizers.norms import global_norm

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_SMALL_FACTOR = 2.0**-100
_SPLIT = 2.0**-64


def clip_grad_norm_(
    grads: Any,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = True,
    numeric_mode: str | None = None,
    **kwargs: Any,
) -> float:
    """Scales gradients in place so that their global L2 norm is at most `max_norm`.

    Each gradient's norm is taken, then the norm of these norms, in a form that neither overflows nor underflows for
    finite gradients; elements below the smallest normal float32 count as zero. Where it exceeds `max_norm`, every
    element is multiplied by max_norm / (norm + 1e-6).

    Args:
        grads: One float32 array or several, of any shapes; separate, writable and C-contiguous.
        max_norm: Largest global norm, above 0; infinity only measures.
        norm_type: 2, the only norm there is.
        error_if_nonfinite: True, the only behaviour there is.
        numeric_mode: A numeric mode or None for the default.
        **kwargs: None is known.

    Returns:
        The global norm before clipping.

    Raises:
        NotFiniteError: A gradient is not finite; the message names the first. A ValueError; nothing was changed.
        ConfigError: `max_norm` is not above 0.
        DtypeError: A gradient is no array of float32.
        UsageError: A gradient is read-only, or two share memory; or the mode is unknown.
        ShapeError: A gradient is empty or not C-contiguous.
        UnsupportedError: Another norm, or norms that are not finite, are asked for; or the mode is not available.
        ArgumentTypeError: A keyword that does not exist.
    """
    if kwargs:
        raise ArgumentTypeError(f"clip_grad_norm_ has no argument {next(iter(kwargs))!r}; leave it out")
    if not isinstance(norm_type, (int, float, np.number)) or norm_type != 2.0:
        raise UnsupportedError(f"norm_type must be 2.0, got {norm_type!r}; only the L2 norm is supported")
    if error_if_nonfinite is not True:
        raise UnsupportedError(
            f"error_if_nonfinite must be True, got {error_if_nonfinite!r}; a norm that is not finite always raises"
        )
    limit, mode = largest_norm(max_norm), resolve_mode(numeric_mode)
    names, items = listed("grads", grads)
    arrays = [float32_in_place(name, item) for name, item in zip(names, items, strict=True)]
    require_separate(names, arrays)
    total = global_norm(names, arrays, mode)
    scale_to_norm(arrays, total, limit)
    return total


def accumulate_grads(microbatch_grads: Any, tokens: int | None, numeric_mode: str | None = None) -> Any:
    """Adds the gradients of microbatches, adjacent pairs first, then pairs of sums, in ascending order.

    Args:
        microbatch_grads: One entry a microbatch, a power of two of them: each a float32 array, or each a list of
            float32 arrays with the same shapes.
        tokens: Tokens of the whole step; a split that `accumulation_is_aligned` denies is then refused. None does not
            check.
        numeric_mode: A numeric mode or None for the default; every mode gives the same bits.

    Returns:
        The sum in the structure of one entry, in new float32 arrays.

    Raises:
        UsageError: The number of entries is no power of two, their structures differ, or the split is not aligned.
        ShapeError: Shapes differ between entries, or an array is empty or not C-contiguous.
        DtypeError: Something is no array of float32.
        UnsupportedError: The mode is not available.
    """
    resolve_mode(numeric_mode)
    names, entries = listed("microbatch_grads", microbatch_grads)
    if not accumulation.is_power_of_two(len(entries)):
        raise UsageError(f"the number of microbatches must be a power of two, got {len(entries)}")
    if tokens is not None and not accumulation_is_aligned(tokens, len(entries)):
        raise UsageError(
            f"{tokens} tokens in {len(entries)} microbatches do not give the gradient of the unsplit step; split as "
            "accumulation_is_aligned allows, or pass tokens=None to add without this check"
        )
    entries = [list(entry) if isinstance(entry, Iterator) else entry for entry in entries]
    parts = [_entry(name, entry) for name, entry in zip(names, entries, strict=True)]
    for name, part, entry in zip(names, parts, entries, strict=True):
        if len(part) != len(parts[0]) or _is_list(entry) != _is_list(entries[0]):
            raise UsageError(f"{name} must have the structure of {names[0]}: {len(parts[0])} arrays, got {len(part)}")
        for i, (array, first) in enumerate(zip(part, parts[0], strict=True)):
            if array.shape != first.shape:
                raise ShapeError(f"{name}: array {i} must have shape {first.shape} as in {names[0]}, got {array.shape}")
    with np.errstate(over="ignore", invalid="ignore"):
        total = [
            column[0].copy() if len(column) == 1 else np.asarray(accumulation.combine(column, np.add))
            for column in zip(*parts, strict=True)
        ]
    return total if _is_list(entries[0]) else total[0]


def accumulation_is_aligned(tokens: int, accumulation_steps: int, numeric_mode: str | None = None) -> bool:
    """Tells whether the sum of the microbatches' gradients adds in the order of the unsplit step's gradient.

    It is arithmetic on the two numbers, the same in every mode. In the mode 'identical' an aligned split gives the
    bits of the unsplit step.

    Args:
        tokens: Tokens of the whole step, at least 1.
        accumulation_steps: Number of microbatches, at least 1.
        numeric_mode: A numeric mode or None.

    Raises:
        ConfigError: A number is not an integer of at least 1.
        UsageError: The mode is unknown.
    """
    if not isinstance(numeric_mode, str) or numeric_mode not in NUMERIC_MODES:
        resolve_mode(numeric_mode)
    count = checks.integer("tokens", tokens, 1)
    return accumulation.accumulation_is_aligned(count, checks.integer("accumulation_steps", accumulation_steps, 1))


def largest_norm(max_norm: Any) -> float:
    """Returns a `max_norm` argument as a float above 0.

    Raises:
        ConfigError: It is not above 0.
    """
    if isinstance(max_norm, (float, np.floating)) and max_norm == math.inf:
        return math.inf
    return checks.float32_above_0("max_norm", max_norm)


def scale_to_norm(arrays: Sequence[Float32], total: float, max_norm: float) -> None:
    """Multiplies gradients of global norm `total` in place so that the norm is at most `max_norm`."""
    factor = float(clip_factor(total, max_norm)) if total <= _FLOAT32_MAX else max_norm / total
    if factor >= 1.0:
        return
    # A factor that float32 holds with few bits, or not at all, is applied in two steps.
    factors = [factor] if factor >= _SMALL_FACTOR else [_SPLIT, max_norm / (total + 1e-6) / _SPLIT]
    for array in arrays:
        for part in factors:
            np.multiply(array, np.float32(part), out=array)


def _is_list(entry: Any) -> bool:
    return isinstance(entry, (list, tuple))


def _entry(name: str, entry: Any) -> list[Float32]:
    names, items = listed(name, entry)
    return [float32_input(n, item) for n, item in zip(names, items, strict=True)]
