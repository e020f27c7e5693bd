"""cross_entropy: negative log-likelihood of target classes under a softmax, summed and divided.

Shapes: T rows, V classes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.errors import ShapeError
from trainc.ir import scalar
from trainc.ir.builder import emit
from trainc.ir.ops.expect import expect_dtype, expect_float, expect_rank, expect_shape
from trainc.ir.primitives import barrier, map_, reduce_max, reduce_sum
from trainc.ir.registry import Call, OpDef, register
from trainc.ir.scalar import Scalar
from trainc.ir.tensor import Aval, Tensor

Array = npt.NDArray[Any]

IGNORED = -100


def _infer(logits: Aval, targets: Aval, divisor: Aval) -> list[Aval]:
    expect_float("logits", logits)
    expect_rank("logits", logits, 2, "(T, V)")
    rows, classes = logits.shape
    expect_dtype("targets", targets, "i32")
    expect_shape("targets", targets, (rows,))
    expect_dtype("divisor", divisor, logits.dtype)
    expect_shape("divisor", divisor, ())
    if rows * classes >= 2**31:
        raise ShapeError(f"expected fewer than 2**31 logits, got {rows} x {classes}; split the batch")
    per_row = Aval((rows,), logits.dtype)
    return [Aval((), logits.dtype), per_row, per_row, per_row]


def _reference(logits_TV: Array, targets_T: Array, divisor: Array) -> tuple[Array, Array, Array, Array]:
    top_T = np.array([max(row) for row in logits_TV], logits_TV.dtype)
    mass_T = np.array([np.exp(row - top).sum() for row, top in zip(logits_TV, top_T, strict=True)], logits_TV.dtype)
    loss_T = np.zeros_like(top_T)
    for row, target in enumerate(targets_T):
        if target != IGNORED:
            loss_T[row] = (np.log(mass_T[row]) + top_T[row] - logits_TV[row, target]) / divisor
    return np.asarray(loss_T.sum()), top_T, mass_T, loss_T


def target_logits(logits_TV: Tensor, targets_T: Tensor) -> Tensor:
    """Return the target's logit of every row, 0 where the target is none of the classes."""

    def pick(x: Scalar, target: Scalar) -> Scalar:
        return scalar.select(scalar.equal(scalar.index(1), target), x, 0.0)

    return reduce_sum("tv->t", map_("tv,t->tv", pick, logits_TV, targets_T))


def _decompose(logits_TV: Tensor, targets_T: Tensor, divisor: Tensor) -> tuple[Tensor, ...]:
    # Without the barrier the maximum of a row of odd length is searched again for each of its elements.
    top_T = barrier(reduce_max("tv->t", logits_TV))
    mass_T = reduce_sum("tv->t", map_("tv,t->tv", lambda x, top: scalar.exp(x - top), logits_TV, top_T))

    def loss(picked: Scalar, top: Scalar, mass: Scalar, target: Scalar, n: Scalar) -> Scalar:
        return scalar.select(scalar.equal(target, IGNORED), 0.0, (scalar.log(mass) - (picked - top)) / n)

    loss_T = map_("t,t,t,t,->t", loss, target_logits(logits_TV, targets_T), top_T, mass_T, targets_T, divisor)
    return reduce_sum("t->", loss_T), top_T, mass_T, loss_T


def _backward(call: Call, d_results: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    logits, targets, divisor = call.operands
    _, top, mass, _ = call.results
    d_loss = d_results[0]
    assert d_loss is not None
    return emit(CROSS_ENTROPY_GRAD, [d_loss, logits, targets, divisor, top, mass])[0], None, None


CROSS_ENTROPY = register(
    OpDef(
        "cross_entropy",
        ("logits", "targets", "divisor"),
        _infer,
        reference=_reference,
        decompose=_decompose,
        backward=_backward,
    )
)


def _infer_grad(d_loss: Aval, logits: Aval, targets: Aval, divisor: Aval, top: Aval, mass: Aval) -> list[Aval]:
    expect_shape("d_loss", d_loss, ())
    expect_shape("divisor", divisor, ())
    for name, operand in (("targets", targets), ("top", top), ("mass", mass)):
        expect_shape(name, operand, logits.shape[:1])
    return [logits]


def _decompose_grad(
    d_loss: Tensor, logits_TV: Tensor, targets_T: Tensor, divisor: Tensor, top_T: Tensor, mass_T: Tensor
) -> Tensor:
    rate = map_(",->", lambda d, n: d / n, d_loss, divisor)

    def element(x: Scalar, target: Scalar, top: Scalar, mass: Scalar, scale: Scalar) -> Scalar:
        hit = scalar.select(scalar.equal(scalar.index(1), target), scalar.constant(1.0, x.dtype), 0.0)
        return scalar.select(scalar.equal(target, IGNORED), 0.0, scale * (scalar.exp(x - top) / mass - hit))

    return map_("tv,t,t,t,->tv", element, logits_TV, targets_T, top_T, mass_T, rate)


CROSS_ENTROPY_GRAD = register(
    OpDef(
        "cross_entropy_grad",
        ("d_loss", "logits", "targets", "divisor", "top", "mass"),
        _infer_grad,
        decompose=_decompose_grad,
    )
)


def cross_entropy(logits: Tensor, targets: Tensor, divisor: Tensor) -> Tensor:
    """Return the summed negative log-likelihood of the targets, divided by `divisor` (spec section 9).

    Rows whose target is -100 are ignored: they add exactly +0.0 and get a gradient of exactly +0.0. Row maxima are
    kept apart from the sums of exponentials, so logits of 1e4 lose nothing.

    Args:
        logits: Shape (T, V), float.
        targets: i32 (T,), in [0, V) or -100; the caller checks them before anything runs.
        divisor: Float scalar (), not zero; no gradient flows to it.

    Returns:
        The loss, shape ().

    Raises:
        ShapeError: A shape does not fit, or there are 2**31 logits or more.
        DtypeError: logits and divisor are not floats of one dtype, or targets are not i32.
    """
    return cross_entropy_and_parts(logits, targets, divisor)[0]


def cross_entropy_and_parts(logits: Tensor, targets: Tensor, divisor: Tensor) -> tuple[Tensor, Tensor]:
    """Return `cross_entropy` and each row's part of it.

    A caller that adds the parts in float64 loses nothing to the rounding of a long float32 sum. Gradients flow from
    the sum only.

    Args:
        logits: As for `cross_entropy`, like the other arguments and the errors.
        targets: i32 (T,).
        divisor: Float scalar ().

    Returns:
        The loss, shape (), and its parts, shape (T,).
    """
    loss, _, _, parts = emit(CROSS_ENTROPY, [logits, targets, divisor])
    return loss, parts
