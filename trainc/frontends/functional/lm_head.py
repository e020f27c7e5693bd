"""chunked_lm_head_loss: a language-model head's mean cross-entropy without its logits in memory.

Shapes: T rows, D width, V classes, G groups of 64 classes. The kernels of `tracing/lm_head.py` see one block of rows
and one block of classes at a time; every sum goes on from block to block term by term, so no bit depends on the blocks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np

from trainc.core import checks
from trainc.core.errors import ShapeError
from trainc.core.modes import resolve_mode
from trainc.frontends.arrays import Float32, Int32, int32_input, require_shape
from trainc.frontends.functional.arguments import matrix, require_finite
from trainc.frontends.functional.kernels import functional_kernel
from trainc.runtime.buffers import aligned_zeros

BLOCK_CLASSES, BLOCK_ROWS = 1024, 2048
"""Most classes (whole groups) and most rows a kernel sees at once: 8 MiB of logits."""

_GROUP = 64


@overload
def chunked_lm_head_loss(
    hidden: Any, weight: Any, targets: Any, return_grad: Literal[False] = False, numeric_mode: str | None = None
) -> float: ...
@overload
def chunked_lm_head_loss(
    hidden: Any, weight: Any, targets: Any, return_grad: Literal[True], numeric_mode: str | None = None
) -> tuple[float, Float32, Float32]: ...
def chunked_lm_head_loss(
    hidden: Any, weight: Any, targets: Any, return_grad: bool = False, numeric_mode: str | None = None
) -> float | tuple[float, Float32, Float32]:
    """Mean cross-entropy of `hidden @ weight.T`, block by block: the logits are never in memory at once.

    In "deterministic" the bits do not depend on the blocks. There is no ignore index: every row counts.

    Args:
        hidden: float32 (rows, width), finite.
        weight: float32 (vocab, width), finite, vocab at least 2.
        targets: Integers (rows,) in [0, vocab).
        return_grad: Also return the gradients.
        numeric_mode: Numeric mode, or None for the default.

    Returns:
        The loss; with `return_grad` also the gradients of hidden (rows, width) and of weight (vocab, width). Logits
        beyond float32 make the loss NaN.

    Raises:
        NotFiniteError: An array holds an infinity or a NaN; the message names the place. A ValueError.
        UsageError: A target is no integer or out of range (the message names its row), or the mode is unknown. A
            ValueError.
        ShapeError: A shape does not fit, or an array is empty or not C-contiguous. A ValueError.
        DtypeError: `hidden` or `weight` is no array of float32. A TypeError.
        UnsupportedError: The mode is not available.
    """
    mode = resolve_mode(numeric_mode)
    wanted = checks.flag("return_grad", return_grad)
    hidden_TD = matrix("hidden", hidden, "(rows, width)")
    weight_VD = matrix("weight", weight, "(vocab, width)", columns=hidden_TD.shape[1])
    vocab = weight_VD.shape[0]
    if vocab < 2:
        raise ShapeError(f"weight must have shape (vocab, width) with vocab at least 2, got {weight_VD.shape}")
    targets_T = int32_input("targets", targets, low=0, high=vocab)
    require_shape("targets", targets_T, hidden_TD.shape[:1], "(rows,)")
    require_finite("hidden", hidden_TD)
    require_finite("weight", weight_VD)
    head = _Head(weight_VD, mode)
    with np.errstate(invalid="ignore", over="ignore"):
        return _loss_and_grads(head, hidden_TD, targets_T) if wanted else _loss(head, hidden_TD, targets_T)


@dataclass(frozen=True)
class _Block:
    """Some consecutive classes, as the kernels take them: padded with zeros to the size that they are compiled for."""

    first: int
    classes: int
    weight_VD: Float32

    @property
    def columns(self) -> slice:
        return slice(self.first, self.first + self.classes)

    @property
    def groups(self) -> slice:
        return slice(self.first // _GROUP, -(-(self.first + self.classes) // _GROUP))


class _Head:
    """The weight in blocks, and the kernels for them."""

    def __init__(self, weight_VD: Float32, mode: str) -> None:
        self.weight_VD = weight_VD
        vocab, self.width = weight_VD.shape
        self.groups = -(-vocab // _GROUP)
        self.size = min(BLOCK_CLASSES, self.groups * _GROUP)
        self._mode = mode

    def blocks(self) -> Iterator[_Block]:
        vocab = self.weight_VD.shape[0]
        for first in range(0, vocab, self.size):
            part_VD = self.weight_VD[first : first + self.size]
            yield _Block(first, len(part_VD), padded_rows(part_VD, self.size))

    def call(self, entry: str, operands: dict[str, Any]) -> dict[str, Any]:
        def traced() -> Any:
            from trainc.frontends.functional.tracing.lm_head import TRACED

            return TRACED[entry](self.width, self.size)

        kernel = functional_kernel(entry, self._mode, traced, width=self.width, classes=self.size)
        return kernel.call(entry, operands)


def padded_rows(part: Float32, count: int) -> Float32:
    """Return an array with rows of zeros added up to a number of rows."""
    if len(part) == count:
        return part
    whole = np.zeros((count, part.shape[1]), np.float32)
    whole[: len(part)] = part
    return whole


def _aligned(array: Float32) -> Float32:
    """Return a copy that every call of a kernel can use in place, where each would make one of its own."""
    copy = aligned_zeros(array.shape, np.float32)
    copy[...] = array
    return copy


def _operands(block: _Block, hidden_TD: Float32, targets_T: Int32) -> dict[str, Any]:
    relative_T = targets_T - np.int32(block.first)
    return {"hidden": hidden_TD, "weight": block.weight_VD, "targets": relative_T, "classes": block.classes}


def _normalise(head: _Head, hidden_TD: Float32, targets_T: Int32) -> tuple[Float32, Float32, float]:
    """Return each row's largest logit and its sum of exp(logit - largest), and the summed loss of the rows."""
    tops_TG, masses_TG = (np.empty((len(hidden_TD), head.groups), np.float32) for _ in range(2))
    picked_T = np.zeros(len(hidden_TD), np.float32)
    for block in head.blocks():
        found = head.call("lm_head_scores", _operands(block, hidden_TD, targets_T))
        count = block.groups.stop - block.groups.start
        tops_TG[:, block.groups] = found["tops"][:, :count]
        masses_TG[:, block.groups] = found["masses"][:, :count]
        picked_T += found["picked"]
    top_T = tops_TG.max(axis=1)
    tops_TG -= top_T[:, None]
    np.exp(tops_TG, out=tops_TG)
    tops_TG *= masses_TG
    mass_T = tops_TG.sum(axis=1, dtype=np.float64)
    losses_T = np.log(mass_T) + (top_T.astype(np.float64) - picked_T)
    return top_T, mass_T.astype(np.float32), float(losses_T.sum())


def _loss(head: _Head, hidden_TD: Float32, targets_T: Int32) -> float:
    hidden_TD = _aligned(hidden_TD)
    total = sum(_normalise(head, hidden_TD[rows], targets_T[rows])[2] for rows in _row_blocks(len(hidden_TD)))
    return float(np.float32(total / len(hidden_TD)))


def _loss_and_grads(head: _Head, hidden_TD: Float32, targets_T: Int32) -> tuple[float, Float32, Float32]:
    total, rate = 0.0, 1.0 / len(hidden_TD)
    hidden_TD = _aligned(hidden_TD)
    d_hidden_TD, d_weight_VD = aligned_zeros(hidden_TD.shape, np.float32), np.zeros_like(head.weight_VD)
    for rows in _row_blocks(len(hidden_TD)):
        top_T, mass_T, part = _normalise(head, hidden_TD[rows], targets_T[rows])
        total += part
        carried_TD = d_hidden_TD[rows]
        for block in head.blocks():
            before_VD = padded_rows(d_weight_VD[block.columns], head.size)
            operands = _operands(block, hidden_TD[rows], targets_T[rows])
            operands |= {"top": top_T, "mass": mass_T, "rate": rate, "d_hidden": carried_TD, "d_weight": before_VD}
            found = head.call("lm_head_grads", operands)
            carried_TD[...] = found["d_hidden"]
            d_weight_VD[block.columns] = found["d_weight"][: block.classes]
    return float(np.float32(total / len(hidden_TD))), d_hidden_TD, d_weight_VD


def _row_blocks(count: int) -> Iterator[slice]:
    return (slice(start, start + BLOCK_ROWS) for start in range(0, count, BLOCK_ROWS))
