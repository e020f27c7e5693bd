"""Checks of what callers pass to a SambaStack, before compiled code sees it.

Shapes: B rows of a batch, L tokens of a row.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core import checks
from trainc.core.errors import ArgumentTypeError, ConfigError, ShapeError, UsageError
from trainc.core.philox import MAX_STREAM
from trainc.frontends.arrays import view
from trainc.frontends.generator import Generator
from trainc.frontends.samba.config import MAX_POSITIONS, SambaConfig
from trainc.frontends.samba.driver import IGNORED_TARGET, Ids, check_ids, dropout_key

_STREAM_ELEMENTS = 2**64


def check_sources(config: Any, weights: Any, generator: Any, lr_schedule: Any) -> None:
    """Check what a stack is built from.

    Raises:
        ArgumentTypeError: `config`, `generator` or `lr_schedule` is of the wrong type.
        UsageError: Not exactly one of `weights` and `generator`.
        ConfigError: The model's heads do not fit together.
    """
    if not isinstance(config, SambaConfig):
        raise ArgumentTypeError(f"config must be a SambaConfig, got {type(config).__name__}")
    config.check_buildable()
    if (weights is None) == (generator is None):
        raise UsageError(f"give exactly one of weights and generator, got {'none' if weights is None else 'both'}")
    if generator is not None and not isinstance(generator, Generator):
        raise ArgumentTypeError(f"generator must be a Generator, got {type(generator).__name__}")
    if lr_schedule is not None and not callable(getattr(lr_schedule, "lr_at", None)):
        raise ArgumentTypeError(f"lr_schedule must have a method lr_at(t), got {type(lr_schedule).__name__}")


def checked_pair(config: SambaConfig, inputs: Any, targets: Any) -> tuple[Ids, Ids]:
    """Return ids and targets as int32 (B, L).

    Raises:
        UsageError: They are no integers or out of range.
        ShapeError: Their shapes differ or are no (B, L).
    """
    ids = checked_ids(config, "inputs", inputs)
    wanted = checked_ids(config, "targets", targets, ignored=True)
    if ids.shape != wanted.shape:
        raise ShapeError(f"inputs and targets must have one shape, got {ids.shape} and {wanted.shape}")
    return ids, wanted


def checked_ids(config: SambaConfig, name: str, value: Any, *, ignored: bool = False) -> Ids:
    """Return ids as int32 (B, L).

    Args:
        config: The model.
        name: Names the array in errors.
        value: Integers, as an array or as lists.
        ignored: Whether -100 is allowed too.

    Raises:
        UsageError: They are no integers or out of range.
        ShapeError: Their shape is no (B, L), or a row is too long for attention.
    """
    ids = integers(name, value)
    if ids.ndim != 2 or not ids.size:
        raise ShapeError(f"{name} must have shape (rows, tokens) with at least one of each, got {ids.shape}")
    if "attention" in config.layers and ids.shape[1] > MAX_POSITIONS:
        raise ShapeError(f"{name} must have at most {MAX_POSITIONS} tokens a row with attention, got {ids.shape[1]}")
    return check_ids(name, ids, ids.shape[1], config.vocab, ignored=ignored)


def integers(name: str, value: Any) -> npt.NDArray[Any]:
    """Return an array or lists of integers as an array of its own integer dtype; booleans are none.

    Raises:
        UsageError: The elements are other numbers; the API has a ValueError here.
        ShapeError: The lists are no rows of one length.
        DtypeError: `value` is neither an array nor a list.
    """
    if isinstance(value, (list, tuple)):
        try:
            array = np.asarray(value)
        except (ValueError, TypeError) as error:
            raise ShapeError(f"{name} must be rows of one length: {error}") from error
    else:
        array = view(name, value)
    if array.dtype.kind not in "iu":
        raise UsageError(f"{name} must be integers, got {array.dtype}")
    return array


def padding_of(lengths: Sequence[int], ids: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which ids are padding, bool (B, L).

    Args:
        lengths: How many ids of each row count.
        ids: (B, L).

    Raises:
        UsageError: A length is no integer or not in [1, L].
        ShapeError: Not one length a row.
    """
    counts = integers("lengths", lengths)
    if ids.ndim != 2 or counts.shape != ids.shape[:1]:
        raise ShapeError(f"lengths must be one integer for each row of inputs {ids.shape}, got shape {counts.shape}")
    bad = np.flatnonzero((counts < 1) | (counts > ids.shape[1]))
    if bad.size:
        raise UsageError(f"lengths[{bad[0]}] must be in 1..{ids.shape[1]}, got {counts[bad[0]]}")
    padding: npt.NDArray[np.bool_] = np.arange(ids.shape[1])[None] >= counts[:, None]
    return padding


def dropout_at(config: SambaConfig, seed: int, stream: int | None, token_offset: int, tokens: int) -> Ids | None:
    """Return the key of the dropout mask of a part of a batch, or None for no dropout.

    Args:
        config: The model.
        seed: Seed of the generator.
        stream: Its stream; None is no dropout.
        token_offset: Tokens of the stream that come before.
        tokens: Tokens of the part.

    Raises:
        ConfigError: `stream` or `token_offset` is no integer in its range.
    """
    offset = checks.integer("token_offset", token_offset, 0)
    if (offset + tokens) * config.d_model > _STREAM_ELEMENTS:
        raise ConfigError(f"token_offset must leave the mask within the 2**64 elements of a stream, got {offset}")
    if stream is None:
        return None
    if checks.integer("dropout_stream", stream, 0) > MAX_STREAM:
        raise ConfigError(f"dropout_stream must be at most {MAX_STREAM}, got {stream}")
    return dropout_key(config, seed, int(stream), offset) if config.dropout else None


def counted_targets(targets: Ids) -> int:
    """Return the number of targets that count.

    Raises:
        UsageError: None does, so there is no mean.
    """
    count = int(np.count_nonzero(targets != IGNORED_TARGET))
    if not count:
        raise UsageError(f"a mean needs a target that counts, but all of them are {IGNORED_TARGET}")
    return count
