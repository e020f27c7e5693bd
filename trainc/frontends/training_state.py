"""What the states of all models that train themselves have in common: their fields, arrays and settings, checked."""

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.adamw import AdamWSettings
from trainc.core.errors import (
    ArgumentTypeError,
    CheckpointError,
    ConfigError,
    NotFiniteError,
    TraincError,
    UsageError,
)
from trainc.core.state_table import StateTable
from trainc.frontends.arrays import require_not_negative, view
from trainc.runtime.checkpoint import write_checkpoint

PRECISION = "f32"
ARRAYS = ("parameters", "exp_avg", "exp_avg_sq")
"""Fields of a state dict that hold arrays by name: the weights and their two moments."""

MALFORMED = (KeyError, TypeError, AttributeError, ValueError)
"""What reading fields of other JSON runs into."""

Arrays = dict[str, npt.NDArray[np.float32]]


class Checkpointed:
    """Base of the models that write checkpoints."""

    def save_checkpoint(self, path: str | Path) -> str:
        """Writes the training state to one safetensors file, whole or not at all.

        Args:
            path: The file; an older one of that name is replaced.

        Returns:
            SHA-256 of the file as 64 hexadecimal digits; equal states give equal files.

        Raises:
            CheckpointError: It cannot be written, or a weight or a moment is not finite; an older file is as it was.
            ArgumentTypeError: `path` is no path.
        """
        return self._save(file_path(path))

    def _save(self, path: Path) -> str:
        raise NotImplementedError


def file_path(path: Any) -> Path:
    """Return an argument `path` as a Path.

    Raises:
        ArgumentTypeError: It is neither a str nor a path.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise ArgumentTypeError(f"path must be a str or a pathlib.Path, got {type(path).__name__}")
    return Path(path)


def require_fields(state: Any, own: Mapping[str, Any], fixed: Collection[str], model: str) -> None:
    """Refuse a state dict that is none, or one of another model.

    Args:
        state: The state that is to be taken over.
        own: The fields of the model's own state, but for the arrays.
        fixed: Names of those that must be equal.
        model: What the model is, for errors.

    Raises:
        UsageError: A field is missing or unknown, or differs from the model's.
        ArgumentTypeError: The state is no mapping.
    """
    if not isinstance(state, Mapping):
        raise ArgumentTypeError(f"state must be a dict made by state_dict, got {type(state).__name__}")
    fields = (*own, *ARRAYS)
    missing, unknown = [f for f in fields if f not in state], [f for f in state if f not in fields]
    if missing or unknown:
        raise UsageError(f"state must be one that state_dict made; missing: {missing}, unknown: {unknown}")
    for field in fixed:
        if not _equal(state[field], own[field]):
            raise UsageError(
                f"{field} must be {own[field]!r:.200} as in this {model}, the state has {state[field]!r:.200}; build a "
                f"{model} like the one that made the state"
            )


def checked_tensors(table: StateTable, what: str, arrays: Any) -> Arrays:
    """Return copies of one float32 array for each tensor of a table.

    Args:
        table: The tensors.
        what: Names the arrays in errors.
        arrays: Arrays by name.

    Raises:
        ArgumentTypeError: `arrays` is no mapping.
        DtypeError: One is no float32 array.
        ShapeError: One is missing, unknown or of another shape.
        NotFiniteError: One is not finite.
    """
    if not isinstance(arrays, Mapping):
        raise ArgumentTypeError(f"{what} must be a dict of arrays by name, got {type(arrays).__name__}")
    taken = {name: view(f"{what}[{name!r}]", array) for name, array in arrays.items()}
    checked: Arrays = table.views(table.pack(taken))
    _require_finite(what, checked)
    return checked


def checked_state(table: StateTable, state: Mapping[str, Any]) -> tuple[Arrays, Arrays, Arrays]:
    """Return copies of the weights and both moments of a state dict.

    Args:
        table: The tensors of each.
        state: The state, with the fields `ARRAYS`.

    Raises:
        ArgumentTypeError, DtypeError, ShapeError, NotFiniteError: As for `checked_tensors`.
        UsageError: A second moment is negative.
    """
    parameters, m, v = (checked_tensors(table, what, state[what]) for what in ARRAYS)
    _require_not_negative(v)
    return parameters, m, v


def save_training(path: Path, parts: Sequence[Mapping[str, npt.NDArray[np.float32]]], state: Mapping[str, Any]) -> str:
    """Write the checkpoint of a training and return the file's SHA-256.

    Args:
        path: The file; an older one of that name is replaced.
        parts: The weights, the first and the second moments, each by name.
        state: Everything else as plain JSON values.

    Raises:
        CheckpointError: It cannot be written, or holds values that no training can go on from; an older file is as it
            was.
    """
    try:
        require_trainable(*parts)
    except TraincError as error:
        raise CheckpointError(f"{path} is not written, a checkpoint could not be read again: {error}") from error
    parameters, m, v = parts
    return write_checkpoint(path, parameters, m, v, state)


def require_trainable(*parts: Mapping[str, npt.NDArray[np.float32]]) -> None:
    """Refuse weights and moments that no training can go on from.

    Args:
        *parts: The weights, the first and the second moments, each by name.

    Raises:
        NotFiniteError: A value is not finite; the message names the tensor.
        UsageError: A second moment is negative; the message names the tensor.
    """
    for what, arrays in zip(ARRAYS, parts, strict=True):
        _require_finite(what, arrays)
    _require_not_negative(parts[-1])


def _require_finite(what: str, arrays: Mapping[str, npt.NDArray[np.float32]]) -> None:
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise NotFiniteError(
                f"{what}[{name!r}] must be finite, but {np.count_nonzero(~np.isfinite(array))} values are not"
            )


def _require_not_negative(v: Mapping[str, npt.NDArray[np.float32]]) -> None:
    for name, array in v.items():
        require_not_negative(f"{ARRAYS[-1]}[{name!r}]", array)


def _equal(found: Any, wanted: Any) -> bool:
    """Whether a field of a state is what it must be; one that gives no single answer, an array, is not."""
    try:
        return bool(found == wanted)
    except ValueError:
        return False


def optimizer_settings(state: Mapping[str, Any]) -> AdamWSettings:
    """Return the optimizer settings of a state.

    Raises:
        ConfigError: They are of another optimizer, a field is missing or unknown, or a setting is impossible.
        KeyError, TypeError, AttributeError, ValueError: `MALFORMED`; there are none.
    """
    settings = dict(state["optimizer"])
    if settings.pop("kind", None) != "adamw":
        raise ConfigError(f"optimizer.kind must be 'adamw', got {state['optimizer'].get('kind')!r}")
    fields = {field.name for field in dataclasses.fields(AdamWSettings)}
    if set(settings) != fields:
        raise ConfigError(f"optimizer must have the fields {sorted(fields)} beside kind, got {sorted(settings)}")
    return AdamWSettings(**settings)
