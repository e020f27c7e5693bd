"""What the trainers of small fixed models offer their users alike: weights, the training state and checkpoints."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from trainc.core.errors import CheckpointError, TraincError
from trainc.core.modes import resolve_mode
from trainc.frontends.kernel_trainer import KernelTrainer
from trainc.frontends.training_state import Checkpointed, file_path
from trainc.runtime.checkpoint import Checkpoint, read_checkpoint

Array = npt.NDArray[np.float32]


class ModelTrainer(Checkpointed):
    """Base of the trainers, which set `_trainer` and say what else their states hold.

    Calls from several threads take turns.
    """

    _kind: ClassVar[str]
    _trainer: KernelTrainer

    def parameters(self) -> dict[str, Array]:
        """Returns the weights by name, in order: live views, so that writing to one changes the model."""
        return self._trainer.parameters()

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        """Copies weights in; moments and step count stay as they are. Nothing changes if this raises.

        Args:
            weights: One finite float32 array for each weight of the constructor, by name.

        Raises:
            ShapeError, DtypeError, NotFiniteError: As for the constructor.
        """
        self._trainer.load_weights(weights)

    def state_dict(self) -> dict[str, Any]:
        """Returns the whole training state: settings, counters and `data` as plain values, arrays by name."""
        with self._trainer.lock:
            return self._trainer.state_dict(self._data())

    def load_state_dict(self, state: Mapping[str, Any]) -> Self:
        """Takes over a state that `state_dict` made, optimizer settings included. Nothing changes if this raises.

        Args:
            state: The state of a trainer of the same configuration and numeric mode.

        Returns:
            This trainer.

        Raises:
            UsageError: The state is of another configuration or numeric mode, or damaged.
            ConfigError: A setting is impossible.
            ShapeError, DtypeError: An array does not fit.
            ArgumentTypeError: `state` is no dict.
        """
        with self._trainer.lock:
            self._trainer.load_state_dict(state, self._take_data)
        return self

    @classmethod
    def from_checkpoint(cls, path: str | Path, numeric_mode: str | None = None) -> Self:
        """Builds a trainer from a checkpoint.

        Args:
            path: The file.
            numeric_mode: A numeric mode; None takes the one in the checkpoint.

        Raises:
            CheckpointError: The file is damaged or of another kind.
            ArgumentTypeError: `path` is no path.
            UsageError: The numeric mode is unknown.
            UnsupportedError: The numeric mode is not available.
        """
        checkpoint = read_checkpoint(file_path(path))
        checkpoint.require({"kind": cls._kind})
        mode = str(checkpoint.state.get("numeric_mode")) if numeric_mode is None else numeric_mode
        resolve_mode(mode)
        try:
            trainer = cls._of(checkpoint, mode)
            trainer._take_data(checkpoint.state["data"])
        except (TraincError, KeyError, TypeError) as error:
            raise CheckpointError(f"{path} does not describe a {cls.__name__}: {error}") from error
        trainer._trainer.restore(checkpoint)
        return trainer

    def _save(self, path: Path) -> str:
        with self._trainer.lock:
            return self._trainer.save(path, self._data())

    @classmethod
    def _of(cls, checkpoint: Checkpoint, mode: str) -> Self:
        """Build a trainer with the configuration and the weights of a checkpoint of its kind."""
        raise NotImplementedError

    def _data(self) -> dict[str, Any]:
        """What the trainer itself has to remember, as JSON values."""
        raise NotImplementedError

    def _take_data(self, data: Mapping[str, Any]) -> None:
        raise NotImplementedError
