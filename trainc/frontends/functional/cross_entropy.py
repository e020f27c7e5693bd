"""cross_entropy: a softmax's negative log-likelihood of class indices, and its gradient."""

from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core import checks
from trainc.core.errors import ShapeError, UnsupportedError, UsageError
from trainc.core.modes import resolve_mode
from trainc.frontends import arrays
from trainc.frontends.arrays import Float32, Int32
from trainc.frontends.functional.arguments import any_integer, matrix, refuse_unknown
from trainc.frontends.functional.kernels import functional_kernel
from trainc.runtime.program import Program

REDUCTIONS = ("mean", "sum", "none")
CHUNK_ELEMENTS = 2**24
"""Logits that one call of the kernel gets at most: it bounds the memory a call needs and changes no bit."""

_IGNORED = -100  # what the kernel ignores, whatever ignore_index is


def cross_entropy(
    logits: Any,
    targets: Any,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    num_items: int | None = None,
    return_grad: bool = False,
    numeric_mode: str | None = None,
    **kwargs: Any,
) -> Any:
    """Cross-entropy of class indices under the softmax of logits (spec section 9).

    A row's loss and gradient depend on that row alone: splitting the rows over several calls changes no bit of them.
    Losses are added in float64.

    Args:
        logits: float32 (N, V).
        targets: Integers (N,): classes in [0, V), or `ignore_index`.
        ignore_index: Rows with this target cost nothing and have a gradient of +0.0; any integer, a class too.
        reduction: "mean", "sum" or "none".
        label_smoothing: Share of the wanted distribution that is spread evenly over all classes, in [0, 1).
        num_items: What the sum is divided by, with "mean" and with "sum", from 1 to 2**63 - 1; None is the number of
            rows that are not ignored with "mean", and 1 with "sum".
        return_grad: Also return the gradient with respect to `logits`.
        numeric_mode: Numeric mode, or None for the default.
        **kwargs: None is known: there are no class weights, and no `size_average` or `reduce`.

    Returns:
        The loss, a float, or with "none" float32 (N,). With `return_grad` the loss and float32 (N, V).

    Raises:
        UsageError: A target is neither a class nor `ignore_index` (the message names its row); every target is
            ignored and "mean" has no `num_items`; or another argument has an impossible value. A ValueError.
        ShapeError: A shape does not fit, or an array is empty or not C-contiguous. A ValueError.
        DtypeError: `logits` is no array of float32. A TypeError.
        ArgumentTypeError: There is no argument of this name. A TypeError.
        UnsupportedError: "none" with `return_grad`, or an unavailable mode. A NotImplementedError.
    """
    mode = resolve_mode(numeric_mode)
    refuse_unknown("cross_entropy", kwargs)
    _check_reduction(reduction, return_grad, num_items)
    smoothing = checks.float32_below_1("label_smoothing", label_smoothing)
    logits_NV = matrix("logits", logits, "(N, V)")
    targets_N = _classes(targets, logits_NV.shape, any_integer("ignore_index", ignore_index))
    divisor = _divisor(reduction, num_items, targets_N)
    kernel = _kernel(mode, logits_NV.shape[1], bool(smoothing), return_grad)
    scalars = {"smoothing": smoothing} if smoothing else {}
    if return_grad:
        scalars["rate"] = 1.0 / divisor
    parts = _by_rows(kernel, logits_NV, targets_N, scalars)
    losses_N = _joined([part["losses"] for part in parts])
    if reduction == "none":
        return losses_N
    loss = float(np.float32(losses_N.sum(dtype=np.float64) / divisor))
    return (loss, _joined([part["d_logits"] for part in parts])) if return_grad else loss


def _check_reduction(reduction: str, return_grad: bool, num_items: int | None) -> None:
    if not isinstance(reduction, str) or reduction not in REDUCTIONS:
        raise UsageError(f"reduction must be one of {', '.join(REDUCTIONS)}, got {reduction!r}")
    if num_items is not None:
        checks.divisor("num_items", num_items)
        if reduction == "none":
            raise UsageError("num_items divides a mean or a sum; leave it out with reduction 'none'")
    if checks.flag("return_grad", return_grad) and reduction == "none":
        raise UnsupportedError("return_grad needs one loss to differentiate; use reduction 'mean' or 'sum'")


def _classes(targets: Any, shape: tuple[int, ...], ignore_index: int) -> Int32:
    """Return the targets as the kernel takes them: a class, or _IGNORED."""
    values = arrays.view("targets", targets)
    count, classes = shape
    if values.dtype.kind not in "iu":
        raise UsageError(f"targets must hold integers, one class a row, got {values.dtype}")
    if values.shape != (count,):
        raise ShapeError(f"targets must have shape (N,) = ({count},) for logits {shape}, got {values.shape}")
    ignored = values == ignore_index
    known = (values >= 0) & (values < classes) | ignored
    if not known.all():
        row = int(np.argmin(known))
        raise UsageError(
            f"targets[{row}] is {values[row]}; it must be a class in [0, {classes}) or ignore_index = {ignore_index}"
        )
    found = np.full(count, _IGNORED, np.int32)
    found[~ignored] = values[~ignored]
    return found


def _divisor(reduction: str, num_items: int | None, targets_N: Int32) -> int:
    if num_items is not None:
        return int(num_items)
    if reduction != "mean":
        return 1
    count = int(np.count_nonzero(targets_N != _IGNORED))
    if count == 0:
        raise UsageError("targets are all ignored, so there is no mean; use reduction 'sum' or pass num_items")
    return count


def _kernel(mode: str, classes: int, smoothed: bool, gradient: bool) -> Program:
    def traced() -> Any:
        from trainc.frontends.functional.tracing.cross_entropy import trace_cross_entropy

        return trace_cross_entropy(classes, smoothed=smoothed, gradient=gradient)

    return functional_kernel("cross_entropy", mode, traced, classes=classes, smoothed=smoothed, gradient=gradient)


def _by_rows(
    kernel: Program, logits_NV: Float32, targets_N: Int32, scalars: dict[str, float]
) -> list[dict[str, npt.NDArray[Any]]]:
    step = max(1, CHUNK_ELEMENTS // logits_NV.shape[1])
    parts = []
    for start in range(0, len(targets_N), step):
        rows = slice(start, start + step)
        parts.append(kernel.call("cross_entropy", {"logits": logits_NV[rows], "targets": targets_N[rows], **scalars}))
    return parts


def _joined(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
