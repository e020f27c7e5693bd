"""The training state of a SambaStack as a dict and as a checkpoint file, and what is checked when it comes back."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from trainc.core import checks
from trainc.core.adamw import AdamWSettings
from trainc.core.errors import ArgumentTypeError, CheckpointError, ConfigError, NotFiniteError, TraincError, UsageError
from trainc.core.schedules import SCHEDULE_KINDS, schedule_from_config
from trainc.core.state_table import StateTable
from trainc.frontends.arrays import view
from trainc.frontends.generator import Generator
from trainc.frontends.samba.config import SambaConfig
from trainc.frontends.samba.driver import KIND
from trainc.runtime.buffers import FlatBuffer
from trainc.runtime.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from trainc.runtime.driver import RandomState
from trainc.runtime.identity import EXTERNAL, identity, progress, schedule_config
from trainc.runtime.step import LearningRates

if TYPE_CHECKING:
    from trainc.frontends.samba.stack import SambaStack

SCHEMA = "trainc-samba-stack-1"
PRECISION = "f32"
_ARRAYS = ("parameters", "exp_avg", "exp_avg_sq")
_FIXED = ("schema", "kind", "config", "registry", "numeric_mode", "precision", "batch")
_FIELDS = (*_FIXED, "optimizer", "schedule", "step", "generator", "data", *_ARRAYS)

_MALFORMED = (KeyError, TypeError, AttributeError, ValueError)  # what reading fields of other JSON runs into

Arrays = dict[str, npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Restored:
    """A state that was checked, ready to be taken over.

    Attributes:
        arrays: Parameters, first and second moments, each by name.
        step: Steps taken.
        random: Where the generator stands.
        optimizer: Optimizer settings.
        schedule: Learning rates.
    """

    arrays: tuple[Arrays, Arrays, Arrays]
    step: int
    random: RandomState
    optimizer: AdamWSettings
    schedule: LearningRates | None


def stack_state(stack: "SambaStack", *, copy: bool) -> dict[str, Any]:
    """Return a stack's whole training state.

    Args:
        stack: The stack.
        copy: Whether the arrays are copies, or views that follow the training.
    """
    return {"schema": SCHEMA, **_json_state(stack), **dict(zip(_ARRAYS, _arrays(stack, copy=copy), strict=True))}


def restored_state(stack: "SambaStack", state: Mapping[str, Any]) -> Restored:
    """Check a state that `stack_state` made against the stack that is to take it over.

    Raises:
        UsageError: A field is missing or unknown, or differs from the stack's.
        ConfigError: A setting is impossible.
        ShapeError: An array is missing, unknown or of another shape.
        DtypeError: An array is not float32.
        NotFiniteError: An array is not finite.
        ArgumentTypeError: The state is no mapping.
    """
    if not isinstance(state, Mapping):
        raise ArgumentTypeError(f"state must be a dict made by state_dict, got {type(state).__name__}")
    missing, unknown = [f for f in _FIELDS if f not in state], [f for f in state if f not in _FIELDS]
    if missing or unknown:
        raise UsageError(f"state must be one that state_dict made; missing: {missing}, unknown: {unknown}")
    own = {"schema": SCHEMA, **_json_state(stack)}
    for field in _FIXED:
        if state[field] != own[field]:
            raise UsageError(
                f"{field} must be {own[field]!r:.200} as in this stack, the state has {state[field]!r:.200}; build a "
                "stack like the one that made the state"
            )
    try:
        schedule = _schedule(state["schedule"], stack.optimizer.lr_schedule)
        return Restored(_checked_arrays(state, stack.table), *_progress(state), _optimizer(state), schedule)
    except TraincError:
        raise
    except _MALFORMED as error:
        raise UsageError(f"state is damaged: it does not describe the training of a model ({error})") from error


def save_stack(stack: "SambaStack", path: Path | str) -> str:
    """Write a stack's checkpoint and return the file's SHA-256.

    Raises:
        CheckpointError: It cannot be written.
    """
    return write_checkpoint(path, *_arrays(stack, copy=False), _json_state(stack))


def read_stack_checkpoint(path: Path | str) -> tuple[SambaConfig, int, str, Restored]:
    """Read a checkpoint and check that it is one of a Samba model.

    Returns:
        The model, the microbatches of a step, the numeric mode, and the state.

    Raises:
        CheckpointError: The file is no such checkpoint, is damaged, or has a schedule of the user's own.
    """
    checkpoint = read_checkpoint(path)
    state = checkpoint.state
    wanted = {"kind": KIND, "precision": PRECISION}
    for field, value in wanted.items():
        if state.get(field) != value:
            raise CheckpointError(f"{path}: {field} must be {value!r}, the checkpoint has {state.get(field)!r:.80}")
    try:
        config = SambaConfig.from_dict(state["config"])
        checkpoint.require_table(StateTable.build("params", config.registry()))
        steps = checks.integer("batch.accumulation_steps", state["batch"]["accumulation_steps"], 1)
        return config, steps, str(state["numeric_mode"]), _restored(checkpoint)
    except CheckpointError:
        raise
    except (TraincError, *_MALFORMED) as error:
        raise CheckpointError(f"{path} does not describe the training of a model: {error}") from error


def _restored(checkpoint: Checkpoint) -> Restored:
    state = checkpoint.state
    if state["schedule"] is not None and state["schedule"].get("kind") not in SCHEDULE_KINDS:
        raise CheckpointError(
            f"{checkpoint.path} was trained with a schedule of kind {state['schedule'].get('kind')!r}, which a "
            "checkpoint cannot make again; build a SambaStack with that lr_schedule, then load_state_dict a state of it"
        )
    arrays = (checkpoint.parameters, checkpoint.m, checkpoint.v)
    return Restored(arrays, *_progress(state), _optimizer(state), _schedule(state["schedule"], None))


def _json_state(stack: "SambaStack") -> dict[str, Any]:
    stack.sync_random()
    fixed = identity(
        kind=KIND,
        config=stack.config.to_dict(),
        numeric_mode=stack.numeric_mode,
        precision=PRECISION,
        batch={"rows": None, "length": None, "accumulation_steps": stack.accumulation_steps},
        trainer=stack.stepper,
    )
    return {**fixed, **progress(stack.stepper.state, None)}


def _arrays(stack: "SambaStack", *, copy: bool) -> tuple[Arrays, Arrays, Arrays]:
    def named(buffer: FlatBuffer) -> Arrays:
        return {name: array.copy() if copy else array for name, array in buffer.views().items()}

    state = stack.stepper.state
    return named(state.params), named(state.m), named(state.v)


def _checked_arrays(state: Mapping[str, Any], table: StateTable) -> tuple[Arrays, Arrays, Arrays]:
    parameters, m, v = (checked_tensors(table, name, state[name]) for name in _ARRAYS)
    return parameters, m, v


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


def _progress(state: Mapping[str, Any]) -> tuple[int, RandomState]:
    generator = Generator(0)
    generator.load_state_dict(state["generator"])
    return checks.integer("step", state["step"], 0), RandomState(generator.seed, generator.counter)


def _optimizer(state: Mapping[str, Any]) -> AdamWSettings:
    settings = dict(state["optimizer"])
    if settings.pop("kind", None) != "adamw":
        raise ConfigError(f"optimizer.kind must be 'adamw', got {state['optimizer'].get('kind')!r}")
    try:
        return AdamWSettings(**settings)
    except TypeError as error:
        raise ConfigError(f"optimizer has an unknown field: {error}") from error


def _schedule(config: Mapping[str, Any] | None, own: LearningRates | None) -> LearningRates | None:
    """Make a stored schedule again; one of the user's own, or one equal to the stack's, stays the stack's."""
    if config is None:
        return None
    if own is not None and (config.get("kind") == EXTERNAL or config == schedule_config(own)):
        return own
    if config.get("kind") == EXTERNAL:
        raise ConfigError(
            "the training had an lr_schedule without config(), which the state cannot hold; build this stack with it"
        )
    return schedule_from_config(config)
