"""What a checkpoint holds beside its tensors, the same whoever trains: the loop, or a stack in a user's own loop."""

from collections.abc import Mapping
from typing import Any

from trainc.runtime.state import TrainState
from trainc.runtime.step import LearningRates, Stepper

EXTERNAL = "external"
"""Kind of a schedule that has no `config()`: a checkpoint cannot make it again."""


def identity(
    *,
    kind: str,
    config: Mapping[str, Any],
    numeric_mode: str,
    precision: str,
    batch: Mapping[str, Any],
    trainer: Stepper,
) -> dict[str, Any]:
    """What training is: all of it must be equal for a checkpoint to be continued.

    Args:
        kind: The model family.
        config: The model.
        numeric_mode: Numeric mode of the compiled code.
        precision: Its precision.
        batch: `rows`, `length` (None where any will do) and `accumulation_steps`.
        trainer: Has the tensors and the settings of optimizer and schedule.
    """
    return {
        "kind": kind,
        "config": dict(config),
        "registry": [{"name": t.name, "shape": list(t.shape)} for t in trainer.state.table.tensors],
        "numeric_mode": numeric_mode,
        "precision": precision,
        "batch": dict(batch),
        "optimizer": {"kind": "adamw", **trainer.optimizer.to_dict()},
        "schedule": schedule_config(trainer.schedule),
    }


def progress(state: TrainState, data: Mapping[str, Any] | None) -> dict[str, Any]:
    """How far training is.

    Args:
        state: What is trained.
        data: Where in the data it stands; None if that is kept elsewhere.
    """
    return {
        "step": state.step,
        "generator": {"seed": state.random.seed, "counter": state.random.counter},
        "data": None if data is None else dict(data),
    }


def schedule_config(schedule: LearningRates | None) -> dict[str, Any] | None:
    """A schedule as plain JSON values; one without `config()` is of kind "external"."""
    if schedule is None:
        return None
    config = getattr(schedule, "config", None)
    return dict(config()) if callable(config) else {"kind": EXTERNAL}
