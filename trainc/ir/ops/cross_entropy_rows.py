"""cross_entropy_rows: negative log-likelihood of target classes under a softmax, a value for every row.

Shapes: T rows, V classes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.errors import ShapeError
from trainc.ir import scalar
from trainc.ir.builder import emit
from trainc.ir.ops.cross_entropy import IGNORED, target_logits
from trainc.ir.ops.expect import expect_dtype, expect_float, expect_rank, expect_shape
from trainc.ir.primitives import barrier, map_, reduce_max, reduce_sum
from trainc.ir.registry import Call, OpDef, register
from trainc.ir.scalar import Scalar
from trainc.ir.tensor import Aval, Tensor

Array = npt.NDArray[Any]


def _infer(logits: Aval, targets: Aval, *smoothing: Aval) -> list[Aval]:
    expect_float("logits", logits)
    expect_rank("logits", logits, 2, "(T, V)")
    expect_dtype("targets", targets, "i32")
    expect_shape("targets", targets, logits.shape[:1])
    if len(smoothing) > 1:
        raise ShapeError(f"expected one smoothing or none, got {len(smoothing)}")
    for value in smoothing:
        expect_dtype("smoothing", value, logits.dtype)
        expect_shape("smoothing", value, ())
    return [Aval(logits.shape[:1], logits.dtype)] * 3


def _reference(logits_TV: Array, targets_T: Array, *smoothing: Array) -> tuple[Array, Array, Array]:
    rows, classes = logits_TV.shape
    loss_T, top_T, mass_T = (np.zeros(rows, logits_TV.dtype) for _ in range(3))
    for row, target in enumerate(targets_T):
        top_T[row] = logits_TV[row].max()
        mass_T[row] = np.exp(logits_TV[row] - top_T[row]).sum()
        log_p_V = logits_TV[row] - top_T[row] - np.log(mass_T[row])
        if target != IGNORED:
            wanted_V = np.zeros(classes, logits_TV.dtype)
            wanted_V[target] = 1.0
            for eps in smoothing:
                wanted_V = (1.0 - eps) * wanted_V + eps / classes
            loss_T[row] = -(wanted_V * log_p_V).sum()
    return loss_T, top_T, mass_T


def _decompose(logits_TV: Tensor, targets_T: Tensor, *smoothing: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    classes = logits_TV.shape[1]
    # Without the barrier the maximum of a row of odd length is searched again for each of its elements.
    top_T = barrier(reduce_max("tv->t", logits_TV))
    mass_T = reduce_sum("tv->t", map_("tv,t->tv", lambda x, top: scalar.exp(x - top), logits_TV, top_T))

    def plain(picked: Scalar, top: Scalar, mass: Scalar, target: Scalar) -> Scalar:
        return scalar.select(scalar.equal(target, IGNORED), 0.0, scalar.log(mass) - (picked - top))

    def smooth(picked: Scalar, top: Scalar, mass: Scalar, target: Scalar, total: Scalar, eps: Scalar) -> Scalar:
        wanted = (1.0 - eps) * (picked - top) + eps * (total / float(classes))
        return scalar.select(scalar.equal(target, IGNORED), 0.0, scalar.log(mass) - wanted)

    operands = [target_logits(logits_TV, targets_T), top_T, mass_T, targets_T]
    if not smoothing:
        return map_("t,t,t,t->t", plain, *operands), top_T, mass_T
    total_T = reduce_sum("tv->t", map_("tv,t->tv", lambda x, top: x - top, logits_TV, top_T))
    return map_("t,t,t,t,t,->t", smooth, *operands, total_T, *smoothing), top_T, mass_T


def _backward(call: Call, d_results: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    logits, targets, *smoothing = call.operands
    _, top, mass = call.results
    d_loss = d_results[0]
    assert d_loss is not None
    d_logits = emit(CROSS_ENTROPY_ROWS_GRAD, [d_loss, logits, targets, top, mass, *smoothing])[0]
    return [d_logits, None, *(None for _ in smoothing)]


CROSS_ENTROPY_ROWS = register(
    OpDef(
        "cross_entropy_rows",
        ("logits", "targets", "smoothing*"),
        _infer,
        reference=_reference,
        decompose=_decompose,
        backward=_backward,
    )
)


def _infer_grad(d_loss: Aval, logits: Aval, targets: Aval, top: Aval, mass: Aval, *smoothing: Aval) -> list[Aval]:
    for name, operand in (("d_loss", d_loss), ("targets", targets), ("top", top), ("mass", mass)):
        expect_shape(name, operand, logits.shape[:1])
    for value in smoothing:
        expect_shape("smoothing", value, ())
    return [logits]


def _decompose_grad(
    d_loss_T: Tensor, logits_TV: Tensor, targets_T: Tensor, top_T: Tensor, mass_T: Tensor, *smoothing: Tensor
) -> Tensor:
    classes = logits_TV.shape[1]

    def element(x: Scalar, target: Scalar, top: Scalar, mass: Scalar, d: Scalar, *eps: Scalar) -> Scalar:
        wanted = scalar.select(scalar.equal(scalar.index(1), target), scalar.constant(1.0, x.dtype), 0.0)
        for share in eps:
            wanted = (1.0 - share) * wanted + share / float(classes)
        return scalar.select(scalar.equal(target, IGNORED), 0.0, d * (scalar.exp(x - top) / mass - wanted))

    spec = "tv,t,t,t,t" + "," * len(smoothing) + "->tv"
    return map_(spec, element, logits_TV, targets_T, top_T, mass_T, d_loss_T, *smoothing)


CROSS_ENTROPY_ROWS_GRAD = register(
    OpDef(
        "cross_entropy_rows_grad",
        ("d_loss", "logits", "targets", "top", "mass", "smoothing*"),
        _infer_grad,
        decompose=_decompose_grad,
    )
)


def cross_entropy_rows(logits: Tensor, targets: Tensor, smoothing: Tensor | None = None) -> Tensor:
    """Return the negative log-likelihood of each row's target (spec section 9).

    A row depends on its own logits and target only. With smoothing s the wanted distribution is 1-s on the target
    and s/V more on every class. Rows whose target is -100 give exactly +0.0, and a gradient of exactly +0.0.

    Args:
        logits: Shape (T, V), float.
        targets: i32 (T,), in [0, V) or -100; the caller checks them before anything runs.
        smoothing: Float scalar () in [0, 1); None is no smoothing. No gradient flows to it.

    Returns:
        The losses, shape (T,).

    Raises:
        ShapeError: A shape does not fit.
        DtypeError: logits and smoothing are not floats of one dtype, or targets are not i32.
    """
    return emit(CROSS_ENTROPY_ROWS, [logits, targets, *([] if smoothing is None else [smoothing])])[0]
