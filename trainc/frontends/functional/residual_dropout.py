"""residual_dropout and residual_dropout_backward: a dropped-out branch added to a residual."""

from typing import Any

import numpy as np

from trainc.core import checks
from trainc.core.errors import ShapeError
from trainc.frontends import draws
from trainc.frontends.arrays import Float32, float32_input
from trainc.frontends.functional.arguments import any_integer, require_finite


def residual_dropout(
    values: Any, residual: Any, *, p: float = 0.5, seed: int = 0, stream: int = 0, offset: int = 0
) -> Float32:
    """Compute residual + dropout(values): a product and a sum, each rounded to float32 (spec section 5).

    The result has the same bits on every machine, so there is no numeric mode.

    Args:
        values: float32 array, finite.
        residual: float32 array of the same shape, finite.
        p: Drop probability in [0, 1), rounded to float32; kept elements are multiplied by 1 / (1 - p).
        seed: Seed of the mask, in [0, 2**64).
        stream: Stream of the mask, in [0, 2**32).
        offset: Index of the first element within the stream, in [0, 2**64), so that a part of a batch draws what the
            batch draws.

    Returns:
        float32 in the shape of the arguments.

    Raises:
        NotFiniteError: An array holds an infinity or a NaN; the message names the place. A ValueError.
        UsageError, ConfigError: `p`, `seed`, `stream` or `offset` is out of its range. A ValueError.
        ShapeError: The shapes differ, or an array is empty or not C-contiguous. A ValueError.
        DtypeError: An array is not of float32. A TypeError.
    """
    mask = _mask(p, seed, stream, offset)
    branch, sum_ = float32_input("values", values), float32_input("residual", residual)
    if branch.shape != sum_.shape:
        raise ShapeError(f"residual must have the shape of values, {branch.shape}, got {sum_.shape}")
    require_finite("values", branch)
    require_finite("residual", sum_)
    out = draws.dropout(branch, **mask)
    with np.errstate(over="ignore"):
        np.add(sum_, out, out=out)
    return out


def residual_dropout_backward(
    gradient: Any, *, p: float = 0.5, seed: int = 0, stream: int = 0, offset: int = 0
) -> tuple[Float32, Float32]:
    """Gradients of `residual_dropout` with respect to `values` and `residual`.

    Args:
        gradient: float32 array, finite: the gradient of its result.
        p: As given to the forward function, like the other arguments.
        seed: Seed of the mask.
        stream: Stream of the mask.
        offset: Index of the first element within the stream.

    Returns:
        `gradient` under the forward function's mask and scale, and a copy of `gradient`.

    Raises:
        NotFiniteError: `gradient` holds an infinity or a NaN; the message names the place. A ValueError.
        UsageError, ConfigError: `p`, `seed`, `stream` or `offset` is out of its range. A ValueError.
        ShapeError: `gradient` is empty or not C-contiguous. A ValueError.
        DtypeError: `gradient` is no array of float32. A TypeError.
    """
    mask = _mask(p, seed, stream, offset)
    d_out = float32_input("gradient", gradient)
    require_finite("gradient", d_out)
    return draws.dropout(d_out, **mask), d_out.copy()


def _mask(p: float, seed: int, stream: int, offset: int) -> dict[str, Any]:
    return {
        "p": checks.float32_below_1("p", p),
        "seed": any_integer("seed", seed),
        "stream": any_integer("stream", stream),
        "offset": any_integer("offset", offset),
    }
