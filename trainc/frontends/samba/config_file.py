"""The TOML file that `trainc compile` reads for a Samba model, checked key by key.

Its tables: `[model]` with the fields of SambaConfig, where `layers` is a list of kinds or a pattern such as
"4*(mamba3, attention)"; `[batch]` with those of BatchConfig; and, as far as the defaults do not suit, `[optimizer]`
with those of AdamWSettings, `[schedule]` with kind, peak_lr, warmup_steps, total_steps and min_lr (without this table
the rate stays at optimizer.lr), and `[decode]` with those of DecodeConfig.
"""

import dataclasses
import difflib
import os
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from trainc.core import checks
from trainc.core.accumulation import is_power_of_two
from trainc.core.adamw import AdamWSettings
from trainc.core.errors import ConfigError
from trainc.core.schedules import Schedule, schedule_from_config
from trainc.frontends.samba.config import MAX_POSITIONS, SambaConfig

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchConfig:
    """Shape of the batch that one optimizer step reads.

    Args:
        rows: Sequences per step.
        length: Tokens per sequence.
        accumulation_steps: Microbatches a step is split into; a power of two that divides `rows`.

    Raises:
        ConfigError: A value is impossible; the message starts with the field's name.
    """

    rows: int
    length: int
    accumulation_steps: int = 1

    def __post_init__(self) -> None:
        _check_integers(self)
        steps = self.accumulation_steps
        if not is_power_of_two(steps) or self.rows % steps:
            raise ConfigError(f"accumulation_steps must be a power of two that divides rows ({self.rows}), got {steps}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodeConfig:
    """Shapes of text generation.

    Args:
        rows: Sequences generated at a time.
        prefill: Tokens of a prompt that are read per call.
        max_tokens: Longest sequence, prompt included.

    Raises:
        ConfigError: A value is impossible; the message starts with the field's name.
    """

    rows: int = 1
    prefill: int = 64
    max_tokens: int = 1024

    def __post_init__(self) -> None:
        _check_integers(self)
        if self.prefill > self.max_tokens:
            raise ConfigError(f"prefill must not be above max_tokens ({self.max_tokens}), got {self.prefill}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SambaRunConfig:
    """Everything that is compiled into the artifact of a Samba model.

    Args:
        model: Shape of the model.
        batch: Shape of a training step.
        optimizer: AdamW and clipping.
        schedule: Learning rates, or None for the constant `optimizer.lr`.
        decode: Shapes of text generation.

    Raises:
        ConfigError: The parts do not fit together; the message starts with table.field.
    """

    model: SambaConfig
    batch: BatchConfig
    optimizer: AdamWSettings = dataclasses.field(default_factory=AdamWSettings)
    schedule: Schedule | None = None
    decode: DecodeConfig = dataclasses.field(default_factory=DecodeConfig)

    def __post_init__(self) -> None:
        _in_table("model", self.model.check_buildable)
        if "attention" not in self.model.layers:
            return
        for name, tokens in (("batch.length", self.batch.length), ("decode.max_tokens", self.decode.max_tokens)):
            if tokens > MAX_POSITIONS:
                raise ConfigError(f"{name} must be at most {MAX_POSITIONS} in a model with attention, got {tokens}")

    def settings(self) -> dict[str, Any]:
        """Returns all but the model as a plain dict, ready for JSON: optimizer, schedule, batch and decode."""
        return {
            "optimizer": self.optimizer.to_dict(),
            "schedule": None if self.schedule is None else self.schedule.config(),
            "batch": dataclasses.asdict(self.batch),
            "decode": dataclasses.asdict(self.decode),
        }


def load_config(path: str | os.PathLike[str]) -> SambaRunConfig:
    """Reads a configuration file.

    Args:
        path: A TOML file.

    Raises:
        ConfigError: The file cannot be read or is not TOML, a key is unknown or missing, or a value is of the
            wrong type or impossible. The message names the file and table.field.
    """
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the configuration: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: expected a TOML file in UTF-8, got other bytes") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    try:
        return config_from_document(document)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def config_from_document(document: Mapping[str, Any]) -> SambaRunConfig:
    """Builds a configuration from the tables of a parsed file; see `load_config`.

    Raises:
        ConfigError: As `load_config`, without the file's name.
    """
    tables = [field.name for field in dataclasses.fields(SambaRunConfig)]
    for name, table in document.items():
        if name not in tables:
            raise ConfigError(f"unknown table [{name}]{_guess(name, tables)}; tables: {', '.join(tables)}")
        if not isinstance(table, dict):
            raise ConfigError(f"[{name}] must be a table, got {table!r}")
    for name in ("model", "batch"):
        if name not in document:
            raise ConfigError(f"the table [{name}] is missing; every configuration needs [model] and [batch]")
    parts: dict[str, Any] = {
        "model": _in_table("model", lambda: _model(document["model"])),
        "batch": _in_table("batch", lambda: _build(BatchConfig, document["batch"])),
    }
    if "optimizer" in document:
        parts["optimizer"] = _in_table("optimizer", lambda: _build(AdamWSettings, document["optimizer"]))
    if "schedule" in document:
        parts["schedule"] = _in_table("schedule", lambda: _schedule(document["schedule"]))
    if "decode" in document:
        parts["decode"] = _in_table("decode", lambda: _build(DecodeConfig, document["decode"]))
    return SambaRunConfig(**parts)


def _model(table: Mapping[str, Any]) -> SambaConfig:
    from trainc.ir.layer_pattern import parse_layer_pattern

    values = dict(table)
    if isinstance(values.get("layers"), str):
        try:
            values["layers"] = parse_layer_pattern(values["layers"])
        except ConfigError as error:
            raise ConfigError(f"layers: {error}") from None
    return _build(SambaConfig, values)


def _schedule(table: Mapping[str, Any]) -> Schedule:
    _check_keys(table, ("kind", "peak_lr", "warmup_steps", "total_steps", "min_lr"), ("kind", "peak_lr"))
    return schedule_from_config(table)


def _build(cls: type[T], table: Mapping[str, Any]) -> T:
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    required = [field.name for field in fields if field.default is dataclasses.MISSING]
    _check_keys(table, [field.name for field in fields], required)
    return cls(**table)


def _check_keys(table: Mapping[str, Any], known: Collection[str], required: Collection[str]) -> None:
    for key in table:
        if key not in known:
            raise ConfigError(f"{key} is not a known field{_guess(key, known)}; fields: {', '.join(known)}")
    for key in required:
        if key not in table:
            raise ConfigError(f"{key} is missing; this table needs {', '.join(required)}")


def _guess(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _in_table(name: str, build: Callable[[], T]) -> T:
    """Runs `build`, whose messages start with a field's name, and puts the table's name before it."""
    try:
        return build()
    except ConfigError as error:
        raise ConfigError(f"{name}.{error}") from None


def _check_integers(config: Any) -> None:
    for field in dataclasses.fields(config):
        object.__setattr__(config, field.name, checks.integer(field.name, getattr(config, field.name), 1))
