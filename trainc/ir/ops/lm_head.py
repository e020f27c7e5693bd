"""lm_head_scores and lm_head_grads: a language-model head's loss over one block of its vocabulary.

The logits of a whole vocabulary are never there at once: a caller goes over blocks of classes twice. The first time
it collects for every row and every GROUP classes the largest logit and the sum of exponentials below it; from these
follows the row's normaliser, whatever the blocks. The second time it gives the normaliser back and gets the gradients,
added to those of the blocks before. Every sum continues in the order of its index, so block sizes change no bit.

Shapes: T rows, D width, V classes of the block, G groups of GROUP classes.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.errors import ShapeError
from trainc.ir import scalar
from trainc.ir.builder import emit
from trainc.ir.ops.cross_entropy import target_logits
from trainc.ir.ops.expect import expect_dtype, expect_float, expect_rank, expect_shape
from trainc.ir.ops.linear import linear
from trainc.ir.primitives import map_, matmul, reduce_max, reduce_sum, reshape
from trainc.ir.registry import OpDef, register
from trainc.ir.scalar import Scalar
from trainc.ir.tensor import Aval, Tensor

Array = npt.NDArray[Any]

GROUP = 64
"""Classes that one partial sum of exponentials covers."""


def _expect_block(hidden: Aval, weight: Aval, targets: Aval, classes: Aval) -> None:
    expect_float("hidden", hidden)
    expect_rank("hidden", hidden, 2, "(T, D)")
    expect_dtype("weight", weight, hidden.dtype)
    expect_rank("weight", weight, 2, "(V, D)")
    expect_shape("weight", weight, (weight.shape[0], hidden.shape[1]))
    expect_dtype("targets", targets, "i32")
    expect_shape("targets", targets, hidden.shape[:1])
    expect_dtype("classes", classes, "i32")
    expect_shape("classes", classes, ())
    if weight.shape[0] % GROUP:
        raise ShapeError(f"expected a block of whole groups of {GROUP} classes, got {weight.shape[0]} classes")


def _infer_scores(hidden: Aval, weight: Aval, targets: Aval, classes: Aval) -> list[Aval]:
    _expect_block(hidden, weight, targets, classes)
    per_group = Aval((hidden.shape[0], weight.shape[0] // GROUP), hidden.dtype)
    return [per_group, per_group, Aval(hidden.shape[:1], hidden.dtype)]


def _logits(hidden_TD: Array, weight_VD: Array, classes: Array) -> Array:
    logits_TV = hidden_TD @ weight_VD.T
    logits_TV[:, int(classes) :] = -np.inf
    return logits_TV


def _scores_reference(
    hidden_TD: Array, weight_VD: Array, targets_T: Array, classes: Array
) -> tuple[Array, Array, Array]:
    logits_TV = _logits(hidden_TD, weight_VD, classes)
    rows, count = logits_TV.shape
    tops_TG, masses_TG = (np.zeros((rows, count // GROUP), logits_TV.dtype) for _ in range(2))
    picked_T = np.zeros(rows, logits_TV.dtype)
    for row in range(rows):
        for group in range(count // GROUP):
            part = logits_TV[row, group * GROUP : (group + 1) * GROUP]
            tops_TG[row, group] = part.max()
            with np.errstate(invalid="ignore"):
                masses_TG[row, group] = np.exp(part - part.max()).sum()
        if 0 <= targets_T[row] < int(classes):
            picked_T[row] = logits_TV[row, targets_T[row]]
    return tops_TG, masses_TG, picked_T


def _block_logits(hidden_TD: Tensor, weight_VD: Tensor, classes: Tensor) -> Tensor:
    """Return the logits of a block, minus infinity past its last class."""

    def element(x: Scalar, count: Scalar) -> Scalar:
        return scalar.select(scalar.index(1) < count, x, float("-inf"))

    return map_("tv,->tv", element, linear(hidden_TD, weight_VD), classes)


def _decompose_scores(
    hidden_TD: Tensor, weight_VD: Tensor, targets_T: Tensor, classes: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    rows, count = hidden_TD.shape[0], weight_VD.shape[0]
    logits_TV = _block_logits(hidden_TD, weight_VD, classes)
    grouped_TGC = reshape(logits_TV, (rows, count // GROUP, GROUP))
    tops_TG = reduce_max("tgc->tg", grouped_TGC)
    powers_TGC = map_("tgc,tg->tgc", lambda x, top: scalar.exp(x - top), grouped_TGC, tops_TG)
    return tops_TG, reduce_sum("tgc->tg", powers_TGC), target_logits(logits_TV, targets_T)


LM_HEAD_SCORES = register(
    OpDef(
        "lm_head_scores",
        ("hidden", "weight", "targets", "classes"),
        _infer_scores,
        reference=_scores_reference,
        decompose=_decompose_scores,
    )
)


def lm_head_scores(hidden: Tensor, weight: Tensor, targets: Tensor, classes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return what one block of classes adds to a row's normaliser and to its target's logit.

    Args:
        hidden: Shape (T, D), float.
        weight: The block's rows of the head (V, D), V a multiple of GROUP.
        targets: i32 (T,), counted from the block's first class; one outside the block picks nothing.
        classes: i32 scalar (), how many of the block's V classes there are; the others have no part in anything.

    Returns:
        The largest logit of each group (T, G), the sum of exp(logit - largest) of each group (T, G), and the
        target's logit (T,), 0 if it lies in another block. Groups that have no class give minus infinity and NaN.

    Raises:
        ShapeError: A shape does not fit.
        DtypeError: hidden and weight are not floats of one dtype, or targets or classes are not i32.
    """
    tops, masses, picked = emit(LM_HEAD_SCORES, [hidden, weight, targets, classes])
    return tops, masses, picked


def _infer_grads(
    hidden: Aval,
    weight: Aval,
    targets: Aval,
    classes: Aval,
    top: Aval,
    mass: Aval,
    rate: Aval,
    d_hidden: Aval,
    d_weight: Aval,
) -> list[Aval]:
    _expect_block(hidden, weight, targets, classes)
    for name, operand, shape in (
        ("top", top, hidden.shape[:1]),
        ("mass", mass, hidden.shape[:1]),
        ("rate", rate, ()),
        ("d_hidden", d_hidden, hidden.shape),
        ("d_weight", d_weight, weight.shape),
    ):
        expect_dtype(name, operand, hidden.dtype)
        expect_shape(name, operand, shape)
    return [d_hidden, d_weight]


def _grads_reference(
    hidden_TD: Array,
    weight_VD: Array,
    targets_T: Array,
    classes: Array,
    top_T: Array,
    mass_T: Array,
    rate: Array,
    d_hidden_TD: Array,
    d_weight_VD: Array,
) -> tuple[Array, Array]:
    d_logits_TV = np.exp(_logits(hidden_TD, weight_VD, classes) - top_T[:, None]) / mass_T[:, None]
    for row, target in enumerate(targets_T):
        if 0 <= target < int(classes):
            d_logits_TV[row, target] -= 1.0
    d_logits_TV *= rate
    return d_hidden_TD + d_logits_TV @ weight_VD, d_weight_VD + d_logits_TV.T @ hidden_TD


def _decompose_grads(
    hidden_TD: Tensor,
    weight_VD: Tensor,
    targets_T: Tensor,
    classes: Tensor,
    top_T: Tensor,
    mass_T: Tensor,
    rate: Tensor,
    d_hidden_TD: Tensor,
    d_weight_VD: Tensor,
) -> tuple[Tensor, Tensor]:
    def element(x: Scalar, target: Scalar, top: Scalar, mass: Scalar, rate: Scalar) -> Scalar:
        hit = scalar.select(scalar.equal(scalar.index(1), target), scalar.constant(1.0, x.dtype), 0.0)
        return rate * (scalar.exp(x - top) / mass - hit)

    logits_TV = _block_logits(hidden_TD, weight_VD, classes)
    d_logits_TV = map_("tv,t,t,t,->tv", element, logits_TV, targets_T, top_T, mass_T, rate)
    return (
        matmul("tv,vd->td", d_logits_TV, weight_VD, d_hidden_TD),
        matmul("tv,td->vd", d_logits_TV, hidden_TD, d_weight_VD),
    )


LM_HEAD_GRADS = register(
    OpDef(
        "lm_head_grads",
        ("hidden", "weight", "targets", "classes", "top", "mass", "rate", "d_hidden", "d_weight"),
        _infer_grads,
        reference=_grads_reference,
        decompose=_decompose_grads,
    )
)


def lm_head_grads(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    classes: Tensor,
    normaliser: tuple[Tensor, Tensor],
    rate: Tensor,
    d_hidden: Tensor,
    d_weight: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of the summed losses with those of one block of classes added.

    Args:
        hidden: Shape (T, D), float.
        weight: The block's rows of the head (V, D), V a multiple of GROUP.
        targets: i32 (T,), counted from the block's first class.
        classes: i32 scalar (), how many of the block's V classes there are.
        normaliser: Largest logit and sum of exp(logit - largest) of each row over all classes, both (T,).
        rate: Gradient of each row's loss, scalar ().
        d_hidden: Sum of the blocks before (T, D).
        d_weight: Gradient of this block's rows from the rows of hidden before these (V, D).

    Returns:
        d_hidden and d_weight with this block's part added, term by term.

    Raises:
        ShapeError: A shape does not fit.
        DtypeError: The float operands are not of one dtype, or targets or classes are not i32.
    """
    operands = [hidden, weight, targets, classes, *normaliser, rate, d_hidden, d_weight]
    new_d_hidden, new_d_weight = emit(LM_HEAD_GRADS, operands)
    return new_d_hidden, new_d_weight
