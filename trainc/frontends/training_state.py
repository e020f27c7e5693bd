"""What the states of all models that train themselves have in common: their fields, arrays and settings, checked."""

import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.adamw import AdamWSettings
from trainc.core.errors import ArgumentTypeError, ConfigError, NotFiniteError, UsageError
from trainc.core.state_table import StateTable
from trainc.frontends.arrays import view

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
            CheckpointError: It cannot be written; an older file is as it was.
        """
        return self._save(path)

    def _save(self, path: str | Path) -> str:
        raise NotImplementedError


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
        if state[field] != own[field]:
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
    for name, array in checked.items():
        if not np.isfinite(array).all():
            raise NotFiniteError(
                f"{what}[{name!r}] must be finite, but {np.count_nonzero(~np.isfinite(array))} values are not"
            )
    return checked


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
