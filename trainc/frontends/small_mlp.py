"""SmallMLPTrainer: a fixed small classifier with its training loop, for tests and for learning the interface.

Shapes: N rows of a batch.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from trainc.core import checks
from trainc.core.adamw import AdamWSettings
from trainc.core.errors import ConfigError, ShapeError
from trainc.core.files import canonical_json
from trainc.core.modes import resolve_mode
from trainc.frontends.arrays import float32_input, int32_input, require_shape
from trainc.frontends.kernel_trainer import KernelTrainer
from trainc.frontends.model_trainer import ModelTrainer
from trainc.frontends.samba.stack_optimizer import StackOptimizer
from trainc.runtime.checkpoint import Checkpoint

if TYPE_CHECKING:
    from trainc.ir.program import Program

INPUTS, HIDDEN, CLASSES = 8, 16, 3
SHAPES: list[tuple[str, tuple[int, ...]]] = [
    ("weight1", (HIDDEN, INPUTS)),
    ("bias1", (HIDDEN,)),
    ("weight2", (CLASSES, HIDDEN)),
    ("bias2", (CLASSES,)),
]
MAX_ROWS = 256
MAX_SCHEDULE_BYTES = 2048
KIND = "small-mlp"

Array = npt.NDArray[np.float32]


class SmallMLPTrainer(ModelTrainer):
    """A multilayer perceptron 8-16-3 with ReLU, trained with AdamW on the mean cross-entropy (spec section 10).

    It computes relu(x weight1^T + bias1) weight2^T + bias2. The number of rows is free: nothing is compiled again.

    Args:
        weights: Initial float32 weights: weight1 (16, 8), bias1 (16,), weight2 (3, 16), bias2 (3,); they are copied.
        lr: Learning rate.
        betas: Decay rates of AdamW's moments, each in [0, 1).
        eps: Added to AdamW's denominator.
        weight_decay: Decoupled weight decay.
        data_schedule: Any JSON value of at most 2048 bytes that says which data comes next; it travels with the
            checkpoint, and nothing here reads it.
        numeric_mode: A numeric mode or None for the default.

    Attributes:
        optimizer: AdamW's rates, step count and moments.
        numeric_mode: The numeric mode.

    Raises:
        ArgumentTypeError: `weights` is no dict.
        ShapeError: A weight is missing, unknown or of another shape.
        DtypeError: A weight is not float32.
        NotFiniteError: A weight is not finite.
        UsageError: The numeric mode is unknown.
        ConfigError: A setting is impossible.
        UnsupportedError: The numeric mode is not available.
    """

    _kind = KIND

    def __init__(
        self,
        weights: Mapping[str, Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        data_schedule: Any = None,
        numeric_mode: str | None = None,
    ) -> None:
        self.numeric_mode = resolve_mode(numeric_mode)
        settings = AdamWSettings(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        self.data_schedule = data_schedule
        config = {"inputs": INPUTS, "hidden": HIDDEN, "classes": CLASSES}
        self._trainer = KernelTrainer(KIND, config, SHAPES, weights, settings, self.numeric_mode, _trace)
        self.optimizer: StackOptimizer = self._trainer.optimizer

    def __repr__(self) -> str:
        return f"SmallMLPTrainer(step={self._trainer.steps}, numeric_mode={self.numeric_mode!r})"

    @property
    def data_schedule(self) -> Any:
        """Which data comes next: a JSON value of the user's.

        Raises:
            ConfigError: It is set to something else, or to more than 2048 bytes.
        """
        return json.loads(self._schedule)

    @data_schedule.setter
    def data_schedule(self, value: Any) -> None:
        self._schedule = _schedule_text(value)

    def predict_logits(self, X: Any) -> Array:
        """Computes logits.

        Args:
            X: float32 (N, 8).

        Returns:
            float32 (N, 3).

        Raises:
            ShapeError: The shape does not fit, or `X` is not C-contiguous.
            DtypeError: `X` is not float32.
        """
        return self._trainer.call("predict", {"x": _rows("X", X)})["logits"]

    def predict_logits_sessions(self, sessions: Sequence[Any]) -> Array:
        """Computes the logits of several batches of rows in one call.

        Args:
            sessions: float32 (N_i, 8) each; N_i may be 0.

        Returns:
            float32 (sum of N_i, 3), in the order given. Every row is what it is in a call of its own.

        Raises:
            ShapeError: A shape does not fit, or an array is not C-contiguous.
            DtypeError: An array is not float32.
        """
        taken = [_rows(f"sessions[{i}]", rows, allow_empty=True) for i, rows in enumerate(sessions)]
        if not sum(map(len, taken)):
            return np.zeros((0, CLASSES), np.float32)
        return self._trainer.call("predict", {"x": np.concatenate(taken)})["logits"]

    def loss_and_grads(self, X: Any, y: Any, *, return_input_grad: bool = False) -> dict[str, Any]:
        """Computes the mean cross-entropy and its gradients; nothing is changed.

        Args:
            X: float32 (N, 8), N from 1 to 256.
            y: Classes, integers (N,) in [0, 3).
            return_input_grad: Whether to give the gradient of `X` too.

        Returns:
            `loss`; `logits`, float32 (N, 3); `gradients` of the four weights by name; and, if asked for, `input_grad`,
            float32 (N, 8).

        Raises:
            ShapeError: A shape does not fit, or there are too many rows.
            DtypeError: `X` is not float32.
            UsageError: `y` holds no integers, or one is out of range.
            ConfigError: `return_input_grad` is no boolean.
        """
        wanted = checks.flag("return_input_grad", return_input_grad)
        results, gradients = self._trainer.gradients(_call(X, y))
        return _report(results, gradients, wanted)

    def apply_gradients(self, gradients: Mapping[str, Any]) -> int:
        """Takes one AdamW step with given gradients.

        Args:
            gradients: One finite float32 array for each weight, by name.

        Returns:
            Number of the step, counted from one.

        Raises:
            ShapeError, DtypeError, NotFiniteError: They do not fit the weights; nothing has changed.
        """
        return self._trainer.apply(gradients).step

    def train_step(self, X: Any, y: Any, *, return_input_grad: bool = False) -> dict[str, Any]:
        """Takes one AdamW step on a batch.

        Args:
            X: float32 (N, 8), N from 1 to 256.
            y: Classes, integers (N,) in [0, 3).
            return_input_grad: Whether to give the gradient of `X` too.

        Returns:
            `step`, counted from one, and what `loss_and_grads` returns, all of it before the update.

        Raises:
            ShapeError, DtypeError, UsageError, ConfigError: As for `loss_and_grads`.
            NumericsError: The loss or a gradient is not finite. As after every error, nothing has changed.
        """
        wanted = checks.flag("return_input_grad", return_input_grad)
        taken, results, gradients = self._trainer.step(_call(X, y))
        return {"step": taken.step, **_report(results, gradients, wanted)}

    def train_steps(self, X: Any, y: Any, k: int) -> dict[str, Any]:
        """Takes several steps on one batch.

        Args:
            X: float32 (N, 8), N from 1 to 256.
            y: Classes, integers (N,) in [0, 3).
            k: Number of steps, at least 1.

        Returns:
            `step`, the number of the last one, and `losses`, float32 (k,), the loss before each update.

        Raises:
            ShapeError, DtypeError, UsageError: As for `loss_and_grads`.
            ConfigError: `k` is below 1.
            NumericsError: A loss or a gradient is not finite; the steps before are taken.
        """
        call, count = _call(X, y), checks.integer("k", k, 1)
        with self._trainer.lock:
            taken = [self._trainer.step(call)[0] for _ in range(count)]
        return {"step": taken[-1].step, "losses": np.array([result.loss for result in taken], np.float32)}

    @classmethod
    def _of(cls, checkpoint: Checkpoint, mode: str) -> Self:
        return cls(checkpoint.parameters, numeric_mode=mode)

    def _data(self) -> dict[str, Any]:
        return {"data_schedule": self.data_schedule}

    def _take_data(self, data: Mapping[str, Any]) -> None:
        self.data_schedule = data["data_schedule"]


def _trace(entry: str) -> "Program":
    from trainc.frontends.tracing.small_mlp import trace_mlp

    return trace_mlp(entry)


def _schedule_text(value: Any) -> str:
    try:
        text = canonical_json(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"data_schedule must be a JSON value, got {type(value).__name__}: {error}") from error
    size_bytes = len(text.encode())
    if size_bytes > MAX_SCHEDULE_BYTES:
        raise ConfigError(f"data_schedule must be at most {MAX_SCHEDULE_BYTES} bytes of JSON, got {size_bytes}")
    return text


def _rows(name: str, value: Any, *, allow_empty: bool = False) -> Array:
    array = float32_input(name, value, allow_empty=allow_empty)
    require_shape(name, array, (None, INPUTS), f"(N, {INPUTS})")
    return array


def _call(X: Any, y: Any) -> dict[str, Any]:
    rows = _rows("X", X)
    if len(rows) > MAX_ROWS:
        raise ShapeError(f"X must have at most {MAX_ROWS} rows, got {len(rows)}; split the batch")
    classes = int32_input("y", y, low=0, high=CLASSES)
    require_shape("y", classes, (len(rows),), "(N,)")
    return {"x": rows, "y": classes, "divisor": float(len(rows))}


def _report(results: Mapping[str, Any], gradients: dict[str, Array], with_input_grad: bool) -> dict[str, Any]:
    report = {"loss": float(results["loss"]), "logits": results["logits"], "gradients": gradients}
    return {**report, "input_grad": results["d_x"]} if with_input_grad else report
