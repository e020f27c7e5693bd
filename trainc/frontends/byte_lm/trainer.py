"""LanguageModelTrainer: a byte language model with its weights and its training loop.

Shapes: B rows, L tokens of a row, V vocabulary.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from trainc.core import checks
from trainc.core.adamw import AdamWSettings
from trainc.core.errors import ArgumentTypeError, ShapeError, UsageError
from trainc.core.modes import resolve_mode
from trainc.frontends.arrays import int32_input, require_shape
from trainc.frontends.byte_lm.config import LanguageModelConfig
from trainc.frontends.kernel_trainer import KernelTrainer
from trainc.frontends.model_trainer import ModelTrainer
from trainc.frontends.samba.driver import IGNORED_TARGET
from trainc.frontends.samba.stack_inputs import padding_of
from trainc.frontends.samba.stack_optimizer import StackOptimizer
from trainc.runtime.checkpoint import Checkpoint

if TYPE_CHECKING:
    from trainc.ir.program import Program

KIND = "byte-lm"

Array = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int32]


class LanguageModelTrainer(ModelTrainer):
    """A small language model: an embedding, transformer blocks, and an output head of its own (spec section 10).

    There is no norm before the head. Training is AdamW without clipping and without a schedule. Every call runs in the
    configuration's shape of batch, so each kind of call is compiled once; shorter and fewer rows are filled up.

    Args:
        config: The model and its shape of batch.
        weights: Initial float32 weights by the names of `config.registry()`; they are copied.
        lr: Learning rate.
        betas: Decay rates of AdamW's moments, each in [0, 1).
        eps: Added to AdamW's denominator.
        weight_decay: Decoupled weight decay.
        numeric_mode: A numeric mode or None for the default.

    Attributes:
        config: As given.
        optimizer: AdamW's rates, step count and moments.
        numeric_mode: The numeric mode.

    Raises:
        ArgumentTypeError: `config` is no LanguageModelConfig, or `weights` is no dict.
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
        config: LanguageModelConfig,
        weights: Mapping[str, Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        numeric_mode: str | None = None,
    ) -> None:
        if not isinstance(config, LanguageModelConfig):
            raise ArgumentTypeError(f"config must be a LanguageModelConfig, got {type(config).__name__}")
        self.config = config
        self.numeric_mode = resolve_mode(numeric_mode)
        settings = AdamWSettings(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        self._trainer = KernelTrainer(
            KIND, config.to_dict(), config.registry(), weights, settings, self.numeric_mode, self._trace
        )
        self.optimizer: StackOptimizer = self._trainer.optimizer
        self._next_batch_index = 0

    def __repr__(self) -> str:
        return f"LanguageModelTrainer({self.config}, completed_steps={self.completed_steps})"

    @property
    def completed_steps(self) -> int:
        """Steps taken."""
        return self._trainer.steps

    @property
    def next_batch_index(self) -> int:
        """Number of the batch that comes next, counted from 0; each step moves it on by one, and it can be set.

        Raises:
            ConfigError: It is set to something else than an integer of at least 0.
        """
        return self._next_batch_index

    @next_batch_index.setter
    def next_batch_index(self, value: int) -> None:
        self._next_batch_index = checks.integer("next_batch_index", value, 0)

    def train_step(self, ids: Any, *, return_gradients: bool = False) -> dict[str, Any]:
        """Takes one AdamW step on the mean cross-entropy of every next token.

        Args:
            ids: Integers (batch, length + 1) in [0, vocab_size).
            return_gradients: Whether to give the gradients too.

        Returns:
            `loss` before the update; `step`, counted from one, and `completed_steps`, the same number;
            `next_batch_index`; and, if asked for, `gradients` by name.

        Raises:
            ShapeError: The shape is not the configuration's.
            UsageError: The ids are no integers or out of range.
            ConfigError: `return_gradients` is no boolean.
            NumericsError: The loss or a gradient is not finite. As after every error, nothing has changed.
        """
        wanted = checks.flag("return_gradients", return_gradients)
        windows = self._ids("ids", ids)
        require_shape("ids", windows, (self.config.batch, self.config.length + 1), "(batch, length + 1)")
        call = {**_call(windows), "divisor": float(self.config.batch * self.config.length)}
        with self._trainer.lock:
            taken, _, gradients = self._trainer.step(call)
            self._next_batch_index += 1
            report = {
                "loss": taken.loss,
                "step": taken.step,
                "completed_steps": taken.step,
                "next_batch_index": self._next_batch_index,
            }
        return {**report, "gradients": gradients} if wanted else report

    def train_steps(self, batches: Sequence[Any], k: int) -> dict[str, Any]:
        """Takes several steps, going round through some batches from `next_batch_index` on.

        Args:
            batches: Ids as for `train_step`; step number `next_batch_index` takes the one at that index modulo their
                number.
            k: Number of steps, at least 1.

        Returns:
            `losses`, float32 (k,), the loss before each update, and what the last `train_step` returns but its loss.

        Raises:
            UsageError: There are no batches, or ids are out of range.
            ShapeError, NumericsError: As for `train_step`; the steps before are taken.
            ConfigError: `k` is below 1.
        """
        if not len(batches):
            raise UsageError("batches must hold at least one batch, got none")
        count = checks.integer("k", k, 1)
        with self._trainer.lock:
            reports = [self.train_step(batches[self._next_batch_index % len(batches)]) for _ in range(count)]
        losses = np.array([report["loss"] for report in reports], np.float32)
        last = {name: value for name, value in reports[-1].items() if name != "loss"}
        return {"losses": losses, **last}

    def logits(self, ids: Any, lengths: Sequence[int] | None = None) -> Array:
        """Computes logits.

        Args:
            ids: Integers (B, L) in [0, vocab_size), any B, L at most the configuration's length.
            lengths: How many ids of each row count, B integers in [1, L]; what follows is padding, whatever it holds.
                None counts all.

        Returns:
            float32 (B, L, V); the logits of padding are +0.0.

        Raises:
            ShapeError: A shape does not fit, or the rows are too long.
            UsageError: The ids or lengths are no integers or out of range.
        """
        if lengths is None:
            return self._logits(self._ids("ids", ids))
        plain = int32_input("ids", ids)
        require_shape("ids", plain, (None, None), "(B, L)")
        padding = padding_of(lengths, plain)
        logits = self._logits(self._ids("ids", np.where(padding, 0, plain)))
        logits[padding] = 0.0
        return logits

    def next_bytes(self, ids: Any, lengths: Sequence[int] | None = None) -> Ids:
        """Computes the likeliest next token of every row; of equal ones the lowest.

        Args:
            ids: As for `logits`.
            lengths: As for `logits`.

        Returns:
            int32 (B,).

        Raises:
            ShapeError, UsageError: As for `logits`.
        """
        logits = self.logits(ids, lengths)
        last = np.full(len(logits), logits.shape[1]) if lengths is None else np.asarray(lengths)
        likeliest: Ids = logits[np.arange(len(logits)), last - 1].argmax(axis=1).astype(np.int32)
        return likeliest

    def evaluate(self, ids: Any) -> float:
        """Computes the mean cross-entropy of every next token; nothing is changed.

        Args:
            ids: Integers (B, length + 1) in [0, vocab_size), any B.

        Raises:
            ShapeError: The shape does not fit.
            UsageError: The ids are no integers or out of range.
        """
        windows = self._ids("ids", ids)
        require_shape("ids", windows, (None, self.config.length + 1), "(B, length + 1)")
        total = 0.0
        for part in _parts(windows, self.config.batch):
            call = _call(part)
            padded = {"ids": self._filled(call["ids"], 0), "targets": self._filled(call["targets"], IGNORED_TARGET)}
            total += float(self._trainer.call("eval_loss", padded)["nll_sum"])
        return total / (len(windows) * self.config.length)

    def _trace(self, entry: str) -> "Program":
        from trainc.frontends.byte_lm.tracing.graph import trace_language_model

        return trace_language_model(self.config, entry)

    @classmethod
    def _of(cls, checkpoint: Checkpoint, mode: str) -> Self:
        config = LanguageModelConfig(**checkpoint.state["config"])
        return cls(config, checkpoint.parameters, numeric_mode=mode)

    def _data(self) -> dict[str, Any]:
        return {"next_batch_index": self._next_batch_index}

    def _take_data(self, data: Mapping[str, Any]) -> None:
        self.next_batch_index = data["next_batch_index"]

    def _ids(self, name: str, value: Any) -> Ids:
        ids = int32_input(name, value, low=0, high=self.config.vocab_size)
        require_shape(name, ids, (None, None), "(B, L)")
        return ids

    def _logits(self, ids: Ids) -> Array:
        tokens = ids.shape[1]
        if tokens > self.config.length:
            raise ShapeError(f"ids must have at most length={self.config.length} tokens a row, got {tokens}")
        parts = [
            self._trainer.call("forward", {"ids": self._filled(part, 0)})["logits"][: len(part), :tokens]
            for part in _parts(ids, self.config.batch)
        ]
        return np.concatenate(parts)

    def _filled(self, part: Ids, value: int) -> Ids:
        """Fill rows and tokens up to the shape that is compiled; attention never looks ahead, so it changes nothing."""
        filled = np.full((self.config.batch, self.config.length), value, np.int32)
        filled[: part.shape[0], : part.shape[1]] = part
        return filled


SmallByteLanguageModelTrainer = LanguageModelTrainer


def _parts(rows: Ids, size: int) -> Iterator[Ids]:
    return (rows[start : start + size] for start in range(0, len(rows), size))


def _call(windows: Ids) -> dict[str, Ids]:
    return {"ids": np.ascontiguousarray(windows[:, :-1]), "targets": np.ascontiguousarray(windows[:, 1:])}
