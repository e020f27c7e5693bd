"""What the trainers of small fixed models share: weights and moments, AdamW steps, and the checkpoint.

Each entry is a kernel of its own, compiled when it is first used; what depends on the number of weights only is one
more.
"""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trainc.core import checks
from trainc.core.adamw import AdamWSettings
from trainc.core.errors import CheckpointError, TraincError, UsageError
from trainc.core.state_table import StateTable
from trainc.frontends.kernels import load_kernel
from trainc.frontends.samba.stack_optimizer import StackOptimizer
from trainc.frontends.training_state import (
    ARRAYS,
    MALFORMED,
    PRECISION,
    Arrays,
    checked_state,
    checked_tensors,
    optimizer_settings,
    require_fields,
    require_trainable,
    save_training,
)
from trainc.runtime.buffers import FlatBuffer
from trainc.runtime.checkpoint import Checkpoint
from trainc.runtime.device import open_device
from trainc.runtime.driver import BoundStep, Inputs, RandomState
from trainc.runtime.identity import identity, progress
from trainc.runtime.program import Results
from trainc.runtime.state import TABLE, TrainState
from trainc.runtime.step import Stepper, StepResult

if TYPE_CHECKING:
    from trainc.frontends.tracing.artifact import Source
    from trainc.ir.program import Program

COMMON = "common"

Shapes = list[tuple[str, tuple[int, ...]]]

_COMMON_ENTRIES = ("accumulate", "norms", "update")
_GIVEN = "given"
_FIXED = ("schema", "kind", "config", "registry", "numeric_mode", "precision", "batch", "schedule")


class KernelTrainer:
    """Weights of a fixed model and their training; calls from several threads take turns.

    Args:
        kind: Kind of the model, which names its kernels and checkpoints.
        config: The model, as JSON values.
        shapes: Its weights as (name, shape) pairs.
        weights: Their initial values by name.
        optimizer: Settings of AdamW.
        mode: Numeric mode.
        trace: Traces an entry, given its name.

    Attributes:
        kind: As given.
        table: Layout of the weights.
        mode: As given.
        stepper: Takes the steps.
        optimizer: Rates, step count and moments for the user.
        lock: Held by every call; hold it to make several calls one.

    Raises:
        DtypeError: A weight is not float32.
        ShapeError: A weight is missing, unknown or of another shape.
        NotFiniteError: A weight is not finite.
    """

    def __init__(
        self,
        kind: str,
        config: Mapping[str, Any],
        shapes: Shapes,
        weights: Mapping[str, Any],
        optimizer: AdamWSettings,
        mode: str,
        trace: "Callable[[str], Program]",
    ) -> None:
        self.kind, self.mode = kind, mode
        self.lock = threading.RLock()
        self.table = StateTable.build(TABLE, shapes)
        self._config = dict(config)
        checked = checked_tensors(self.table, "weights", weights)
        self._entries = _Entries(kind, {"config": self._config, "mode": mode}, self.table, trace)
        state = TrainState(self._entries)
        state.start(checked, RandomState())
        self.stepper = Stepper(self._entries, _Binder(), state, optimizer)
        self.optimizer = StackOptimizer(self.stepper, 1)

    @property
    def steps(self) -> int:
        """Steps taken."""
        return self.stepper.state.step

    def parameters(self) -> Arrays:
        """Live views of the weights by name."""
        return self.stepper.state.params.views()

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        """Copy weights in; nothing changes if this raises."""
        checked = checked_tensors(self.table, "weights", weights)
        with self.lock:
            self.stepper.state.params.write(checked)

    def call(self, entry: str, arguments: Inputs) -> Results:
        """Run an entry that reads the weights only."""
        with self.lock:
            return self._entries.call(entry, {"params": self.stepper.state.params, **arguments})

    def gradients(self, arguments: Mapping[str, Any]) -> tuple[Results, Arrays]:
        """Run the `gradients` entry; returns its results and the gradients by name."""
        with self.lock:
            _, grads = self.stepper.gradients(arguments)
            return self._entries.results, {name: view.copy() for name, view in grads.views().items()}

    def step(self, arguments: Mapping[str, Any]) -> tuple[StepResult, Results, Arrays]:
        """Take a step; returns what it did, the results of its `gradients` entry, and the gradients by name."""
        with self.lock:
            taken = self.stepper.run(arguments)
            return taken, self._entries.results, self._entries.copied_gradients()

    def apply(self, gradients: Mapping[str, Any]) -> StepResult:
        """Take a step with gradients of the caller's.

        Raises:
            DtypeError, ShapeError, NotFiniteError: They do not fit the weights.
        """
        checked = checked_tensors(self.table, "gradients", gradients)
        with self.lock:
            return self.stepper.run({_GIVEN: checked})  # type: ignore[dict-item]

    def state_dict(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the whole training state, arrays copied.

        Args:
            data: What the trainer itself has to remember, as JSON values.
        """
        with self.lock:
            arrays = [{name: view.copy() for name, view in buffer.views().items()} for buffer in self._buffers()]
            return {"schema": self._schema, **self._json(data), **dict(zip(ARRAYS, arrays, strict=True))}

    def load_state_dict(self, state: Mapping[str, Any], take: Callable[[Mapping[str, Any]], None]) -> None:
        """Take over a state that `state_dict` made. Nothing changes if this raises.

        Args:
            state: The state.
            take: Takes over its `data`; the trainer's own check, which raises one of the errors below.

        Raises:
            UsageError: A field is missing, unknown, damaged or of another model.
            ConfigError: A setting is impossible.
            ShapeError, DtypeError: An array does not fit.
            ArgumentTypeError: The state is no dict.
        """
        require_fields(state, {"schema": self._schema, **self._json({})}, _FIXED, "trainer")
        try:
            arrays = checked_state(self.table, state)
            step, optimizer = checks.integer("step", state["step"], 0), optimizer_settings(state)
            take(state["data"])
        except TraincError:
            raise
        except MALFORMED as error:
            raise UsageError(f"state is damaged: {error}") from error
        self._restore(arrays, step, optimizer)

    def save(self, path: Path, data: Mapping[str, Any]) -> str:
        """Write a checkpoint; returns the file's SHA-256.

        Raises:
            CheckpointError: It cannot be written, or a value is not finite.
        """
        with self.lock:
            return save_training(path, [buffer.views() for buffer in self._buffers()], self._json(data))

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take over a checkpoint of a model of the same config.

        Raises:
            CheckpointError: It does not describe this model's training.
        """
        checkpoint.require({"kind": self.kind, "config": self._config, "precision": PRECISION})
        checkpoint.require_table(self.table)
        arrays = checkpoint.parameters, checkpoint.m, checkpoint.v
        try:
            step, optimizer = checks.integer("step", checkpoint.state["step"], 0), optimizer_settings(checkpoint.state)
            require_trainable(*arrays)
        except (TraincError, *MALFORMED) as error:
            raise CheckpointError(f"{checkpoint.path} does not describe a training: {error}") from error
        self._restore(arrays, step, optimizer)

    @property
    def _schema(self) -> str:
        return f"trainc-{self.kind}-1"

    def _buffers(self) -> list[FlatBuffer]:
        state = self.stepper.state
        return [state.params, state.m, state.v]

    def _json(self, data: Mapping[str, Any]) -> dict[str, Any]:
        fixed = identity(
            kind=self.kind,
            config=self._config,
            numeric_mode=self.mode,
            precision=PRECISION,
            batch={"rows": None, "length": None, "accumulation_steps": 1},
            trainer=self.stepper,
        )
        return {**fixed, **progress(self.stepper.state, data)}

    def _restore(self, arrays: tuple[Arrays, Arrays, Arrays], step: int, optimizer: AdamWSettings) -> None:
        parameters, m, v = arrays
        with self.lock:
            self.stepper.state.restore(parameters, m, v, step, RandomState())
            self.stepper.optimizer = optimizer


class _Binder:
    """Passes a step's arguments on: there are no microbatches."""

    accumulation_steps = 1

    def bind_step(self, inputs: Inputs, random: RandomState, /) -> BoundStep:
        return BoundStep([inputs], 0, False, random)


class _Entries:
    """The entries of a model, each loaded when it is first called; remembers what `gradients` gave last."""

    def __init__(
        self, kind: str, parameters: Mapping[str, Any], table: StateTable, trace: "Callable[[str], Program]"
    ) -> None:
        self._kind, self._parameters, self._table, self._trace = kind, parameters, table, trace
        self._grads: FlatBuffer | None = None
        self.results: Results = {}

    def call(self, name: str, arguments: Mapping[str, Any], /) -> Results:
        if name != "gradients":
            return self._run(name, arguments)
        self._grads = arguments["grads"]
        if _GIVEN in arguments:
            self._grads.write(arguments[_GIVEN])
            self.results = {"loss": np.zeros((), np.float32)}
        else:
            self.results = self._run(name, arguments)
        return self.results

    def new_state(self, table: str, name: str | None = None, /) -> FlatBuffer:
        return FlatBuffer(open_device(), self._table, name or table)

    def copied_gradients(self) -> Arrays:
        assert self._grads is not None
        return {name: view.copy() for name, view in self._grads.views().items()}

    def _run(self, name: str, arguments: Mapping[str, Any]) -> Results:
        kernel = COMMON if name in _COMMON_ENTRIES else name
        parameters = {**self._parameters, "entry": kernel}
        program = load_kernel(f"{self._kind}-{kernel}", parameters, lambda: self._source(kernel))
        return program.call(name, arguments)

    def _source(self, kernel: str) -> "Source":
        from trainc.frontends.tracing.artifact import Source
        from trainc.frontends.tracing.common import trace_buffer_entries

        program = trace_buffer_entries(self._table.size) if kernel == COMMON else self._trace(kernel)
        tables = dict.fromkeys(("params", "grads", "accum", "m", "v"), self._table)
        return Source(programs={kernel: program}, tables=tables, numeric_mode=self._parameters["mode"])
