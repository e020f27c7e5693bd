"""The driver of kind "samba": what a batch of the language model looks like to the training step and to evaluation.

Shapes: B rows of a batch, b rows of one microbatch, L tokens of a row.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core import checks
from trainc.core.accumulation import is_power_of_two
from trainc.core.errors import ArtifactError, ConfigError, DtypeError, ShapeError, UsageError
from trainc.core.manifest import Manifest
from trainc.frontends.generator import Generator
from trainc.frontends.samba.config import SambaConfig
from trainc.frontends.samba.init import initial_weights
from trainc.frontends.samba.state import NAMES, decode_tables
from trainc.runtime.driver import BoundEvaluation, BoundStep, Call, Inputs, RandomState

KIND = "samba"
IGNORED_TARGET = -100
"""A target of this value counts nothing."""

_DROPOUT_KEY = "dropout_key"

Ids = npt.NDArray[np.int32]


class SambaDriver:
    """Binds batches of token ids to the entries of a Samba artifact.

    Args:
        manifest: The artifact's manifest.

    Attributes:
        config: The model.

    Raises:
        ArtifactError: The manifest is of another kind, its configuration is impossible, or its settings do not fit
            its entries or states.
    """

    kind = KIND

    def __init__(self, manifest: Manifest) -> None:
        if manifest.kind != KIND:
            raise ArtifactError(f"the artifact must be of kind {KIND!r}, got {manifest.kind!r}")
        try:
            self.config = SambaConfig.from_dict(manifest.config)
        except ConfigError as error:
            raise ArtifactError(f"manifest: config.{error}") from error
        names = ("rows", "length", "accumulation_steps")
        self.rows, self.length, self.accumulation_steps = _positive(manifest, "batch", names)
        _check_decode(manifest, self.config)
        self._args = {name: {arg.name: arg for arg in entry.args} for name, entry in manifest.entries.items()}
        ids = self._args.get("gradients", {}).get("ids")
        expected = (self.rows // self.accumulation_steps, self.length)
        if ids is None or ids.shape != expected:
            raise ArtifactError(
                f"manifest: entries.gradients needs ids of shape {expected} for this batch, got "
                f"{None if ids is None else ids.shape}"
            )
        self._micro_rows = expected[0]

    @property
    def vocab(self) -> int:
        """Ids lie in [0, vocab)."""
        return self.config.vocab

    def initial_parameters(self, seed: int) -> tuple[dict[str, npt.NDArray[np.float32]], RandomState]:
        """Draw the initial weights.

        Args:
            seed: In [0, 2**64).
        """
        generator = Generator(seed)
        weights = initial_weights(self.config, generator)
        return weights, RandomState(generator.seed, generator.counter)

    def inputs(self, windows: npt.NDArray[np.uint8]) -> Inputs:
        """Next-byte prediction: ids are all but the last byte of each window, targets all but the first.

        Args:
            windows: uint8 [rows, L + 1].
        """
        ids = windows.astype(np.int32)
        return {"ids": ids[:, :-1], "targets": ids[:, 1:]}

    def bind_step(self, inputs: Inputs, random: RandomState) -> BoundStep:
        """Cut a batch into microbatches of consecutive rows.

        With dropout the step takes one stream, and a microbatch draws the part of it that belongs to its tokens: how
        the batch is cut does not change the mask.

        Args:
            inputs: `ids` and `targets`, integers [B, L]; a target of -100 is ignored.
            random: Where the draws stand.

        Raises:
            ShapeError: Another shape.
            DtypeError: Not integers.
            UsageError: An id or target is outside the vocabulary.
        """
        ids, targets = self._checked(inputs)
        if ids.shape[0] != self.rows:
            raise ShapeError(f"ids and targets must have {self.rows} rows, got {ids.shape[0]}")
        dropout = _DROPOUT_KEY in self._args["gradients"]
        return bind_batch(self.config, ids, targets, self.accumulation_steps, random, dropout=dropout)

    def bind_evaluation(self, inputs: Inputs) -> BoundEvaluation:
        """Cut any number of rows into evaluation calls; the last is filled up with ignored targets.

        Args:
            inputs: As for `bind_step`, with any number of rows.

        Raises:
            ShapeError: Another shape.
            DtypeError: Not integers.
            UsageError: An id or target is outside the vocabulary.
        """
        ids, targets = self._checked(inputs)
        count = int(np.count_nonzero(targets != IGNORED_TARGET))
        missing = -ids.shape[0] % self._micro_rows
        ids = np.pad(ids, ((0, missing), (0, 0)))
        targets = np.pad(targets, ((0, missing), (0, 0)), constant_values=IGNORED_TARGET)
        calls: list[Call] = [
            {"ids": ids[row : row + self._micro_rows], "targets": targets[row : row + self._micro_rows]}
            for row in range(0, ids.shape[0], self._micro_rows)
        ]
        return BoundEvaluation(calls, count)

    def _checked(self, inputs: Inputs) -> tuple[Ids, Ids]:
        if set(inputs) != {"ids", "targets"}:
            raise UsageError(f"a batch has the arrays ids and targets, got {', '.join(inputs)}")
        ids = check_ids("ids", inputs["ids"], self.length, self.vocab)
        targets = check_ids("targets", inputs["targets"], self.length, self.vocab, ignored=True)
        if ids.shape != targets.shape:
            raise ShapeError(f"ids and targets must have one shape, got {ids.shape} and {targets.shape}")
        return ids, targets


def _positive(manifest: Manifest, table: str, names: tuple[str, ...]) -> tuple[int, ...]:
    """Whole numbers of at least 1 from a table of a manifest's settings."""
    values = manifest.settings.get(table)
    found = [values.get(name) if isinstance(values, dict) else None for name in names]
    numbers = tuple(value for value in found if isinstance(value, int) and not isinstance(value, bool) and value >= 1)
    if len(numbers) != len(names):
        raise ArtifactError(
            f"manifest: settings.{table} must have the numbers {', '.join(names)}, at least 1, got {values!r:.200}"
        )
    return numbers


def _check_decode(manifest: Manifest, config: SambaConfig) -> None:
    """Check that the caches hold as many tokens as the settings say: compiled code does not look."""
    if not {NAMES.table, NAMES.cache_table} & set(manifest.state):
        return
    rows, max_tokens = _positive(manifest, "decode", ("rows", "max_tokens"))
    for table in decode_tables(config, rows, max_tokens).values():
        if manifest.state.get(table.name) != table:
            raise ArtifactError(
                f"manifest: settings.decode does not fit state.{table.name}: its layout is not that of {rows} rows of "
                f"{max_tokens} tokens; compile the artifact again"
            )


@dataclass(frozen=True)
class BatchBinder:
    """Cuts batches of any shape into microbatches, for a stack.

    Attributes:
        config: The model.
        accumulation_steps: Microbatches of a batch.

    Raises:
        ConfigError: `accumulation_steps` is no power of two.
    """

    config: SambaConfig
    accumulation_steps: int

    def __post_init__(self) -> None:
        if not is_power_of_two(checks.integer("accumulation_steps", self.accumulation_steps, 1)):
            raise ConfigError(f"accumulation_steps must be a power of two, got {self.accumulation_steps}")

    def bind_step(self, inputs: Inputs, random: RandomState, /) -> BoundStep:
        """Cut a batch of checked int32 `ids` and `targets`."""
        dropout = self.config.dropout > 0
        return bind_batch(
            self.config, inputs["ids"], inputs["targets"], self.accumulation_steps, random, dropout=dropout
        )


def bind_batch(
    config: SambaConfig, ids: Ids, targets: Ids, accumulation_steps: int, random: RandomState, *, dropout: bool
) -> BoundStep:
    """Cut a checked batch into microbatches of consecutive rows, each with the whole batch's divisor.

    Args:
        config: The model.
        ids: int32 (B, L).
        targets: int32 (B, L).
        accumulation_steps: Number of microbatches; divides B.
        random: Where the draws stand.
        dropout: Whether the step takes a stream and draws a mask.
    """
    rows, length = ids.shape
    count = int(np.count_nonzero(targets != IGNORED_TARGET))
    stream = None
    if dropout:
        stream, random = _take_stream(random)
    calls = []
    for start in range(0, rows, rows // accumulation_steps):
        part = slice(start, start + rows // accumulation_steps)
        key = None if stream is None else dropout_key(config, random.seed, stream, start * length)
        calls.append(gradients_call(ids[part], targets[part], max(count, 1), key))
    return BoundStep(calls, ids.size, count == 0, random)


def gradients_call(ids: Ids, targets: Ids, divisor: int, key: Ids | None = None) -> Call:
    """The arguments of the `gradients` entry, without its states.

    Args:
        ids: int32 (b, L).
        targets: int32 (b, L).
        divisor: What the summed loss is divided by.
        key: A `dropout_key`, for the entry of a model with dropout.
    """
    call = {"ids": ids, "targets": targets, "divisor": float(divisor)}
    return call if key is None else {**call, _DROPOUT_KEY: key}


def dropout_key(config: SambaConfig, seed: int, stream: int, token_offset: int) -> Ids:
    """The key of a dropout mask as the compiled code takes it: seed, stream and element offset in 32-bit words.

    Args:
        config: The model.
        seed: Seed of the generator.
        stream: Its stream.
        token_offset: Tokens of the stream that come before.
    """
    low, offset = 0xFFFFFFFF, token_offset * config.d_model
    words = np.array([seed & low, seed >> 32, stream, offset & low, offset >> 32], np.uint32)
    return words.view(np.int32)


def _take_stream(random: RandomState) -> tuple[int, RandomState]:
    generator = Generator(random.seed)
    generator.counter = random.counter
    stream = generator.next_stream()
    return stream, RandomState(random.seed, generator.counter)


def check_ids(name: str, value: Any, length: int, vocab: int, *, ignored: bool = False) -> Ids:
    """Check token ids before compiled code sees them, which trusts them.

    Args:
        name: Names the array in errors.
        value: Integers [rows, length].
        length: Tokens a row must have.
        vocab: Ids must lie in [0, vocab).
        ignored: Whether -100 is allowed too.

    Returns:
        The ids as a contiguous int32 array.

    Raises:
        ShapeError: Another shape, or no row.
        DtypeError: Not integers.
        UsageError: An id is out of range; the message names the first.
    """
    ids = np.asarray(value)
    if ids.dtype.kind not in "iu":
        raise DtypeError(f"{name} must be integers, got {ids.dtype}")
    if ids.ndim != 2 or ids.shape[0] < 1 or ids.shape[1] != length:
        raise ShapeError(f"{name} must have shape (rows, {length}) with at least one row, got {ids.shape}")
    bad = (ids < 0) | (ids >= vocab)
    if ignored:
        bad &= ids != IGNORED_TARGET
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        raise UsageError(
            f"{name} must lie in 0..{vocab - 1}{' or be -100' if ignored else ''}, got {ids[row, column]} in row "
            f"{row}, column {column}"
        )
    return np.ascontiguousarray(ids, np.int32)
