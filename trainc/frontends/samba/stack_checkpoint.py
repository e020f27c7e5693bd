"""The training state of a SambaStack as a dict and as a checkpoint file, and what is checked when it comes back."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainc.core import checks
from trainc.core.adamw import AdamWSettings
from trainc.core.errors import CheckpointError, ConfigError, TraincError, UsageError
from trainc.core.schedules import SCHEDULE_KINDS, schedule_from_config
from trainc.core.state_table import StateTable
from trainc.frontends.generator import Generator
from trainc.frontends.samba.config import SambaConfig
from trainc.frontends.samba.driver import KIND
from trainc.frontends.training_state import (
    ARRAYS,
    MALFORMED,
    PRECISION,
    Arrays,
    checked_state,
    optimizer_settings,
    require_fields,
    require_trainable,
    save_training,
)
from trainc.runtime.buffers import FlatBuffer
from trainc.runtime.checkpoint import Checkpoint, read_checkpoint
from trainc.runtime.driver import RandomState
from trainc.runtime.identity import EXTERNAL, identity, progress, schedule_config
from trainc.runtime.step import LearningRates

if TYPE_CHECKING:
    from trainc.frontends.samba.stack import SambaStack

SCHEMA = "trainc-samba-stack-1"
_FIXED = ("schema", "kind", "config", "registry", "numeric_mode", "precision", "batch")


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
    return {"schema": SCHEMA, **_json_state(stack), **dict(zip(ARRAYS, _arrays(stack, copy=copy), strict=True))}


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
    require_fields(state, {"schema": SCHEMA, **_json_state(stack)}, _FIXED, "stack")
    try:
        schedule = _schedule(state["schedule"], stack.optimizer.lr_schedule)
        return Restored(checked_state(stack.table, state), *_progress(state), optimizer_settings(state), schedule)
    except TraincError:
        raise
    except MALFORMED as error:
        raise UsageError(f"state is damaged: it does not describe the training of a model ({error})") from error


def save_stack(stack: "SambaStack", path: Path) -> str:
    """Write a stack's checkpoint and return the file's SHA-256.

    Raises:
        CheckpointError: It cannot be written, or a value is not finite.
    """
    return save_training(path, _arrays(stack, copy=False), _json_state(stack))


def read_stack_checkpoint(path: Path) -> tuple[SambaConfig, int, str, Restored]:
    """Read a checkpoint and check that it is one of a Samba model.

    Returns:
        The model, the microbatches of a step, the numeric mode, and the state.

    Raises:
        CheckpointError: The file is no such checkpoint, is damaged, holds values that no training can go on from, or
            has a schedule of the user's own.
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
        require_trainable(checkpoint.parameters, checkpoint.m, checkpoint.v)
        steps = checks.integer("batch.accumulation_steps", state["batch"]["accumulation_steps"], 1)
        return config, steps, str(state["numeric_mode"]), _restored(checkpoint)
    except CheckpointError:
        raise
    except (TraincError, *MALFORMED) as error:
        raise CheckpointError(f"{path} does not describe the training of a model: {error}") from error


def _restored(checkpoint: Checkpoint) -> Restored:
    state = checkpoint.state
    if state["schedule"] is not None and state["schedule"].get("kind") not in SCHEDULE_KINDS:
        raise CheckpointError(
            f"{checkpoint.path} was trained with a schedule of kind {state['schedule'].get('kind')!r}, which a "
            "checkpoint cannot make again; build a SambaStack with that lr_schedule, then load_state_dict a state of it"
        )
    arrays = (checkpoint.parameters, checkpoint.m, checkpoint.v)
    return Restored(arrays, *_progress(state), optimizer_settings(state), _schedule(state["schedule"], None))


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


def _progress(state: Mapping[str, Any]) -> tuple[int, RandomState]:
    generator = Generator(0)
    generator.load_state_dict(state["generator"])
    return checks.integer("step", state["step"], 0), RandomState(generator.seed, generator.counter)


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
