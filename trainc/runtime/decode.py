"""Generating tokens. What a recurrence keeps goes back and forth between two buffers; caches grow in place."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainc.core.errors import ArtifactError, ShapeError, UsageError
from trainc.runtime.buffers import FlatBuffer
from trainc.runtime.program import Program
from trainc.runtime.sampling import SamplingOptions, find_stop, next_token

_OLD, _NEW = "decode_in", "decode_out"


@dataclass(frozen=True)
class Generated:
    """What was generated for one prompt.

    Attributes:
        tokens: The new tokens, without the stop string.
        finish_reason: "stop" or "length".
    """

    tokens: list[int]
    finish_reason: str


class Decoder:
    """Feeds tokens to a model and returns the logits of what comes next.

    Args:
        program: An artifact with the entries `prefill` and `decode`.
        params: The weights.

    Attributes:
        rows: Sequences that run side by side (Bd).
        prefill: Tokens of one compiled prefill (T).
        vocab: Ids lie in [0, vocab).
        max_tokens: Tokens a sequence can have.
        position: Tokens fed so far.

    Raises:
        ArtifactError: The artifact cannot decode.
    """

    def __init__(self, program: Program, params: FlatBuffer) -> None:
        args = {arg.name: arg for arg in program.entry("prefill").args}
        decode_args = {arg.name: arg for arg in program.entry("decode").args}
        settings = program.manifest.settings.get("decode")
        if not isinstance(settings, dict) or not isinstance(settings.get("max_tokens"), int):
            raise ArtifactError("manifest: settings.decode.max_tokens is missing; compile the artifact again")
        if "ids" not in args or "ids" not in decode_args:
            raise ArtifactError("manifest: the entries prefill and decode need an argument 'ids'")
        logits = [result for result in program.entry("prefill").results if result.name == "logits"]
        if not logits or len(logits[0].shape) != 2 or len(args["ids"].shape) != 2:
            raise ArtifactError("manifest: the entry prefill needs ids and a result 'logits', both of two dimensions")
        self.vocab = logits[0].shape[-1]
        self.rows, self.prefill = args["ids"].shape
        if decode_args["ids"].shape != (self.rows, 1):
            raise ArtifactError(f"manifest: entries.decode.args.ids must have shape ({self.rows}, 1)")
        self.max_tokens = int(settings["max_tokens"])
        self.position = 0
        self._program, self._params = program, params
        self._states = {
            name: program.new_state(arg.state, name)
            for name, arg in decode_args.items()
            if arg.state is not None and name != "params"
        }

    def reset(self) -> None:
        """Forget all tokens."""
        self.position = 0
        for state in self._states.values():
            state.clear()

    def feed(self, ids: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
        """Append tokens to every sequence.

        Args:
            ids: int32 [rows, tokens], at least one token; the same number for every row.

        Returns:
            float32 [rows, vocab], the logits after the last token.

        Raises:
            ShapeError: Another number of rows, or no token.
            UsageError: An id is outside the vocabulary, or the sequences would exceed `max_tokens`; nothing was fed.
        """
        if ids.ndim != 2 or ids.shape[0] != self.rows or ids.shape[1] < 1:
            raise ShapeError(f"ids must have shape ({self.rows}, tokens) with at least one token, got {ids.shape}")
        if ids.min() < 0 or ids.max() >= self.vocab:
            bad = ids[(ids < 0) | (ids >= self.vocab)][0]
            raise UsageError(f"ids must lie in 0..{self.vocab - 1}, got {bad}")
        count = ids.shape[1]
        if self.position + count > self.max_tokens:
            raise UsageError(
                f"the artifact was compiled for {self.max_tokens} tokens a sequence; {self.position} were fed and "
                f"{count} more were given; compile with a larger decode max_tokens"
            )
        logits: npt.NDArray[np.float32] | None = None
        start = 0
        while start < count:
            length = min(self.prefill, count - start)
            logits = self._call(ids[:, start : start + length])
            start += length
        assert logits is not None
        return logits

    def _call(self, ids: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
        length = ids.shape[1]
        name, width = ("decode", 1) if length == 1 else ("prefill", self.prefill)
        padded = np.zeros((self.rows, width), np.int32)
        padded[:, :length] = ids
        call = {"params": self._params, "ids": padded, "length": length, "position": self.position}
        results = self._program.call(name, call | self._states)
        if _OLD in self._states:
            self._states[_OLD], self._states[_NEW] = self._states[_NEW], self._states[_OLD]
        self.position += length
        logits: npt.NDArray[np.float32] = results["logits"]
        return logits


def generate(
    decoder: Decoder,
    prompt: Sequence[int],
    max_tokens: int,
    options: SamplingOptions,
    on_token: Callable[[int, int], None] | None = None,
) -> list[Generated]:
    """Continue a prompt, once in every row of the decoder; row i draws from stream `options.stream + i`.

    Stop strings are compared with the tokens as bytes, so they need a byte vocabulary.

    Args:
        decoder: The model; it is reset first.
        prompt: At least one token.
        max_tokens: The most new tokens, at least 1.
        options: How each token is chosen.
        on_token: Called with (row, token) as each token is chosen, also for those a stop string takes back.

    Raises:
        UsageError: An empty prompt, `max_tokens` below 1, or prompt and new tokens exceed what was compiled.
        NumericsError: The logits are not usable.
    """
    if not prompt or max_tokens < 1:
        raise UsageError(f"a prompt token and max_tokens of at least 1 are needed, got {len(prompt)} and {max_tokens}")
    if len(prompt) + max_tokens > decoder.max_tokens:
        raise UsageError(
            f"the artifact was compiled for {decoder.max_tokens} tokens a sequence; the prompt has {len(prompt)}, "
            f"{max_tokens} new ones were asked for; ask for fewer, or compile with a larger decode max_tokens"
        )
    rows = [_Row(row, options, on_token) for row in range(decoder.rows)]
    decoder.reset()
    logits = decoder.feed(np.tile(np.asarray(prompt, np.int32), (decoder.rows, 1)))
    for index in range(max_tokens):
        chosen = [row.choose(logits[row.number], index) for row in rows]
        if all(row.stopped for row in rows) or index == max_tokens - 1:
            break
        logits = decoder.feed(np.array(chosen, np.int32)[:, None])
    return [Generated(row.tokens, "stop" if row.stopped else "length") for row in rows]


class _Row:
    """One sequence while it grows."""

    def __init__(self, number: int, options: SamplingOptions, on_token: Callable[[int, int], None] | None) -> None:
        self.number, self.tokens, self.stopped = number, list[int](), False
        self._stream = (options.stream + number) % 2**32
        self._options, self._on_token = options, on_token

    def choose(self, logits: npt.NDArray[np.float32], index: int) -> int:
        if self.stopped:
            return 0
        token = next_token(logits, self._options, self._stream, index)
        self.tokens.append(token)
        if self._on_token is not None:
            self._on_token(self.number, token)
        longest = max(map(len, self._options.stop), default=0)
        tail = max(0, len(self.tokens) - longest)
        place = find_stop(bytes(t % 256 for t in self.tokens[tail:]), self._options.stop) if longest else None
        if place is not None:
            del self.tokens[tail + place :]
            self.stopped = True
        return token
