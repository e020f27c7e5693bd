"""SambaStack: a Samba language model that holds its weights and trains itself.

Shapes: B rows of a batch, L tokens of a row, V vocabulary.
"""

import threading
from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core import checks
from trainc.core.adamw import AdamWSettings
from trainc.core.errors import ArgumentTypeError, ShapeError, UsageError
from trainc.core.modes import resolve_mode
from trainc.core.state_table import StateTable
from trainc.frontends.generator import Generator
from trainc.frontends.samba.buckets import StackEntries
from trainc.frontends.samba.config import SambaConfig
from trainc.frontends.samba.driver import BatchBinder, Ids, gradients_call
from trainc.frontends.samba.init import initial_weights
from trainc.frontends.samba.stack_checkpoint import (
    Restored,
    read_stack_checkpoint,
    restored_state,
    save_stack,
    stack_state,
)
from trainc.frontends.samba.stack_inputs import (
    check_sources,
    checked_ids,
    checked_pair,
    counted_targets,
    dropout_at,
    integers,
    padding_of,
)
from trainc.frontends.samba.stack_optimizer import StackOptimizer, packed
from trainc.frontends.samba.state import SambaState
from trainc.frontends.training_state import Checkpointed, checked_tensors, file_path
from trainc.runtime.driver import BoundStep, RandomState
from trainc.runtime.losses import total_loss
from trainc.runtime.state import TrainState
from trainc.runtime.step import LearningRates, Stepper

Array = npt.NDArray[np.float32]


class SambaStack(Checkpointed):
    """A Samba language model with its weights, its AdamW optimizer and its training step.

    The model is an embedding, the layers of the configuration, a final RMSNorm and the output head. Weights, moments
    and gradients stay in flat buffers on the device; a step copies token ids in and a few numbers out.

    Every shape of batch is compiled when it is first used (seconds) and loaded from the cache folder afterwards
    (milliseconds); `trainc.frontends.samba.buckets` tells how to get along with few shapes. The 32 shapes used last
    stay loaded. Calls from several threads take turns.

    Args:
        config: The model's shape.
        weights: Initial weights by registry name, float32; give these or `generator`.
        generator: Draws the initial weights, and later the dropout masks. With `weights`, masks come from
            `Generator(0)`.
        lr: Learning rate where no schedule sets it.
        betas: Decay rates of AdamW's moments, each in [0, 1).
        eps: Added to AdamW's denominator.
        weight_decay: Decoupled weight decay.
        lr_schedule: Any object with `lr_at(t)`, t counting steps from one; None keeps `lr`.
        max_norm: Largest global gradient norm; None does not clip.
        accumulation_steps: Microbatches a step is cut into, a power of two; each batch's rows must be a multiple.
        numeric_mode: A numeric mode or None for the default.

    Attributes:
        config: The model's shape.
        names: Names of the parameters, in registry order.
        shapes: Their shapes.
        offsets: Where each begins in `flat`.
        n_total: Number of elements of `flat`.
        generator: Draws the dropout masks.
        optimizer: AdamW's rates, step count and moments.
        accumulation_steps: Microbatches of a step.
        numeric_mode: The numeric mode.
        last_: What the last `train_step` returned; None before the first.

    Raises:
        ArgumentTypeError: `config`, `generator` or `lr_schedule` is of the wrong type. A TypeError.
        UsageError: Not exactly one of `weights` and `generator`.
        ShapeError, DtypeError, NotFiniteError: The weights are none for this model; see `load_weights`.
        ConfigError: A setting is impossible, or the model's heads do not fit together.
        UnsupportedError: The numeric mode is not available.
    """

    def __init__(
        self,
        config: SambaConfig,
        weights: Mapping[str, Any] | None = None,
        generator: Generator | None = None,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        lr_schedule: LearningRates | None = None,
        max_norm: float | None = None,
        accumulation_steps: int = 1,
        numeric_mode: str | None = None,
    ) -> None:
        check_sources(config, weights, generator, lr_schedule)
        self._lock = threading.RLock()
        self.config = config
        self.numeric_mode = resolve_mode(numeric_mode)
        binder = BatchBinder(config, accumulation_steps)
        self.accumulation_steps = int(accumulation_steps)
        optimizer = AdamWSettings(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, max_norm=max_norm)
        self._entries = StackEntries(config, self.numeric_mode)
        self.generator = Generator(0) if generator is None else generator
        checked = None if weights is None else checked_tensors(self.table, "weights", weights)
        self.names = list(self.table.names)
        self.shapes = [tensor.shape for tensor in self.table.tensors]
        sizes = [prod(shape) for shape in self.shapes]
        self.offsets = list(accumulate(sizes[:-1], initial=0))
        self.n_total = sum(sizes)
        self.last_: dict[str, Any] | None = None
        state = TrainState(self._entries)
        state.start(initial_weights(config, self.generator) if checked is None else checked, RandomState())
        self.stepper = Stepper(self._entries, binder, state, optimizer, lr_schedule)
        self.optimizer = StackOptimizer(self.stepper, self.accumulation_steps)
        self.sync_random()

    def __repr__(self) -> str:
        return f"SambaStack({self.config}, step={self.stepper.state.step}, numeric_mode={self.numeric_mode!r})"

    @property
    def table(self) -> StateTable:
        """Layout of the resident buffers, in which every tensor starts on 256 bytes."""
        return self._entries.table

    @property
    def max_norm(self) -> float | None:
        """Largest global gradient norm; None does not clip."""
        return self.stepper.optimizer.max_norm

    @property
    def flat(self) -> Array:
        """A read-only copy of all parameters, float32 (n_total,) in registry order; write through `parameters()`."""
        return packed(self.stepper.state.params)

    @property
    def arrays(self) -> list[Array]:
        """The parameters in registry order: live views, as in `parameters()`."""
        return list(self.parameters().values())

    def parameters(self) -> dict[str, Array]:
        """Returns the parameters by name, in registry order: live views, so that writing to one changes the model."""
        return self.stepper.state.params.views()

    def load_weights(self, weights: Mapping[str, Any]) -> None:
        """Copies parameters in; moments and step count stay as they are. Nothing changes if this raises.

        Args:
            weights: One finite float32 array for every registry name.

        Raises:
            ShapeError: A name is missing or unknown, or a shape differs.
            DtypeError: An array is not float32.
            ArgumentTypeError: `weights` is no dict.
            NotFiniteError: A value is not finite.
        """
        checked = checked_tensors(self.table, "weights", weights)
        with self._lock:
            self.stepper.state.params.write(checked)

    def forward(self, inputs: Any, state: SambaState | None = None, *, lengths: Sequence[int] | None = None) -> Array:
        """Computes logits, without dropout.

        Args:
            inputs: Integer ids (B, L) in [0, vocab).
            state: What came before; None is nothing. The call moves it on behind `inputs`.
            lengths: How many ids of each row count, B integers in [1, L]; what follows is padding, whatever it holds.
                Not together with `state`.

        Returns:
            float32 (B, L, V). With `lengths`, the logits of a row's ids are those of the row alone, and the logits of
            its padding are +0.0.

        Raises:
            UsageError: The ids are no integers or out of range, the state is full, or state and lengths come together.
            ShapeError: A shape does not fit.
            ArgumentTypeError: `state` is no SambaState.
        """
        if state is not None and lengths is not None:
            raise UsageError("lengths cannot be given together with a state: its rows have all read as many tokens")
        if state is not None:
            return self._read(checked_ids(self.config, "inputs", inputs), state)
        if lengths is None:
            return self._logits(checked_ids(self.config, "inputs", inputs))
        ids = integers("inputs", inputs)
        padding = padding_of(lengths, ids)
        logits = self._logits(checked_ids(self.config, "inputs", np.where(padding, 0, ids)))
        logits[padding] = 0.0
        return logits

    def allocate_state(self, batch_size: int, max_tokens: int) -> SambaState:
        """Returns an empty state for `forward` and `step`.

        Args:
            batch_size: Sequences that are read side by side.
            max_tokens: Tokens each can have. Only attention has this limit; it sizes the caches of its layers.

        Raises:
            ConfigError: A number is below 1, or the state would be larger than memory can be.
            UsageError: More tokens than attention has positions for.
        """
        return SambaState(self.config, batch_size, max_tokens)

    def step(self, inputs: Any, state: SambaState) -> Array:
        """Reads one token in every row: `forward` with a state and L = 1.

        Args:
            inputs: Integer ids (B,) or (B, 1).
            state: What came before; the call moves it on by one token.

        Returns:
            float32 (B, V), the logits of what comes next.

        Raises:
            UsageError: The ids are no integers or out of range, or the state is full.
            ShapeError: A shape does not fit.
            ArgumentTypeError: `state` is no SambaState.
        """
        ids = integers("inputs", inputs)
        if ids.ndim not in (1, 2) or (ids.ndim == 2 and ids.shape[1] != 1):
            raise ShapeError(f"inputs must have shape (B,) or (B, 1), got {ids.shape}")
        return self._read(checked_ids(self.config, "inputs", ids.reshape(-1, 1)), state)[:, 0]

    def loss(self, inputs: Any, targets: Any) -> float:
        """Computes the mean cross-entropy, without dropout.

        Args:
            inputs: Integer ids (B, L) in [0, vocab).
            targets: What follows each id: integers (B, L) in [0, vocab), or -100 where nothing is to be predicted.

        Raises:
            UsageError: Ids or targets are no integers or out of range, or no target counts.
            ShapeError: A shape does not fit.
        """
        ids, wanted = checked_pair(self.config, inputs, targets)
        count = counted_targets(wanted)
        params = self.stepper.state.params
        with self._lock:
            parts = self._entries.call("eval_loss", {"params": params, "ids": ids, "targets": wanted})["nll"]
        return total_loss(parts) / count

    def loss_and_grads(
        self,
        inputs: Any,
        targets: Any,
        num_items: int | None = None,
        dropout_stream: int | None = None,
        token_offset: int = 0,
    ) -> tuple[float, list[Array]]:
        """Computes the loss and the gradient of every parameter; nothing is changed.

        Args:
            inputs: Integer ids (B, L) in [0, vocab).
            targets: As for `loss`.
            num_items: What the summed loss is divided by, from 1 to 2**63 - 1; None is the number of targets that count
                here. With the count of a whole batch, the gradients of its parts add up to its gradient.
            dropout_stream: Stream of the generator that the dropout mask is drawn from; None is no dropout.
            token_offset: Tokens of that stream that belong to earlier parts of the batch.

        Returns:
            The loss, and float32 gradients in registry order.

        Raises:
            UsageError: Ids or targets are no integers or out of range, or no target counts and `num_items` is None.
            ConfigError: `num_items`, `dropout_stream` or `token_offset` is no integer in its range.
            ShapeError: A shape does not fit.
        """
        ids, wanted = checked_pair(self.config, inputs, targets)
        divisor = counted_targets(wanted) if num_items is None else checks.divisor("num_items", num_items)
        key = dropout_at(self.config, self.generator.seed, dropout_stream, token_offset, ids.size)
        call = gradients_call(ids, wanted, divisor, key)
        with self._lock:
            loss, grads = self.stepper.gradients_of(BoundStep([call], ids.size, False, RandomState()))
            return loss, [gradient.copy() for gradient in grads.views().values()]

    def train_step(self, inputs: Any, targets: Any) -> dict[str, Any]:
        """Takes one optimizer step.

        The rows are cut into `accumulation_steps` microbatches of consecutive rows, whose gradients are added by a
        balanced tree before clipping and the update. With dropout the step takes one stream of the generator.

        Args:
            inputs: Integer ids (B, L) in [0, vocab).
            targets: As for `loss`; without any that counts, the loss is 0, the gradients are zero and the step is
                taken all the same.

        Returns:
            `loss` before the update; `lr`; `step`, counted from one; `total_norm`, the gradient's norm before clipping
            or None without `max_norm`; and `ignored_all`: True if no target counted.

        Raises:
            UsageError: Ids or targets are no integers or out of range.
            ShapeError: A shape does not fit, or the rows cannot be cut into microbatches.
            NumericsError: The loss or a gradient is not finite. As after every error, nothing has changed.
            ConfigError: The schedule gave an impossible rate.
        """
        ids, wanted = checked_pair(self.config, inputs, targets)
        rows, parts = ids.shape[0], self.accumulation_steps
        if rows % parts:
            raise ShapeError(f"the rows of inputs must be a multiple of accumulation_steps={parts}, got {rows}")
        with self._lock:
            self.sync_random()
            result = self.stepper.run({"ids": ids, "targets": wanted})
            self.generator.counter = self.stepper.state.random.counter
            norm = None if self.max_norm is None else result.grad_norm
            self.last_ = {"loss": result.loss, "lr": result.lr, "step": result.step, "total_norm": norm}
            if result.ignored_all:
                self.last_["ignored_all"] = True
            return dict(self.last_)

    def state_dict(self, *, _copy_arrays: bool = True) -> dict[str, Any]:
        """Returns the whole training state: settings and counters as plain values, arrays by registry name."""
        with self._lock:
            return stack_state(self, copy=_copy_arrays)

    def load_state_dict(self, state: Mapping[str, Any]) -> "SambaStack":
        """Takes over a state that `state_dict` made, with its optimizer settings and schedule.

        A schedule without `config()` is not in the state; this stack's own one stays then. Nothing changes if this
        raises.

        Args:
            state: The state of a stack of the same configuration, numeric mode and accumulation.

        Returns:
            This stack.

        Raises:
            UsageError: The state is of another stack or damaged.
            ConfigError: A setting is impossible, or a schedule is missing.
            ShapeError: An array is missing, unknown or of another shape.
            DtypeError: An array is not float32.
            ArgumentTypeError: `state` is no dict.
            NotFiniteError: An array is not finite.
        """
        with self._lock:
            self._restore(restored_state(self, state))
        return self

    @classmethod
    def from_checkpoint(cls, path: str | Path, numeric_mode: str | None = None) -> "SambaStack":
        """Builds a stack from a checkpoint of `save_checkpoint` or of `trainc run`.

        Args:
            path: The file.
            numeric_mode: A numeric mode; None takes the one in the checkpoint.

        Raises:
            CheckpointError: The file is damaged or of another kind, or was trained with a schedule without `config()`.
            ArgumentTypeError: `path` is no path.
            UsageError: The numeric mode is unknown.
            UnsupportedError: The numeric mode is not available.
        """
        config, accumulation_steps, stored_mode, restored = read_stack_checkpoint(file_path(path))
        mode = stored_mode if numeric_mode is None else numeric_mode
        stack = cls(config, restored.arrays[0], accumulation_steps=accumulation_steps, numeric_mode=mode)
        stack._restore(restored)
        return stack

    def _save(self, path: Path) -> str:
        with self._lock:
            return save_stack(self, path)

    def sync_random(self) -> None:
        """Lets the training state know where the generator stands, which the caller may have drawn from."""
        self.stepper.state.random = RandomState(self.generator.seed, self.generator.counter)

    def _restore(self, restored: Restored) -> None:
        self.stepper.state.restore(*restored.arrays, restored.step, restored.random)
        self.stepper.optimizer, self.stepper.schedule = restored.optimizer, restored.schedule
        self.last_ = None
        self.generator.load_state_dict({"seed": restored.random.seed, "counter": restored.random.counter})

    def _logits(self, ids: Ids) -> Array:
        with self._lock:
            return self._entries.call("forward", {"params": self.stepper.state.params, "ids": ids})["logits"]

    def _read(self, ids: Ids, state: SambaState) -> Array:
        if not isinstance(state, SambaState):
            raise ArgumentTypeError(f"state must be a SambaState from allocate_state, got {type(state).__name__}")
        with self._lock:
            state.require(self.config, *ids.shape)
            return self._entries.read(self.stepper.state.params, state, ids)
