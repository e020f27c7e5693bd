"""RMSNorm of B and C, both at once (spec section 2: eps 1e-5, over the state channels)."""

from math import prod

from trainc.ir.ops.mamba3.sizes import NORM_EPS, STATE
from trainc.ir.ops.row_sums import sum_rows
from trainc.ir.primitives import elementwise, map_, reduce_sum, reshape
from trainc.ir.scalar import sqrt
from trainc.ir.tensor import Tensor


def norm(x_TSN: Tensor, weight_SN: Tensor) -> tuple[Tensor, Tensor]:
    """Return weight * x * inverse, and inverse = 1/sqrt(mean(x^2) + eps) of shape (T, S)."""
    square_TS = reduce_sum("tsn->ts", elementwise(lambda e: e * e, x_TSN))
    inverse_TS = elementwise(lambda total: 1.0 / sqrt(total / float(STATE) + NORM_EPS), square_TS)
    return map_("tsn,ts,sn->tsn", lambda e, r, w: w * (e * r), x_TSN, inverse_TS, weight_SN), inverse_TS


def d_norm(d_TSN: Tensor, x_TSN: Tensor, weight_SN: Tensor, inverse_TS: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of x and weight: with n = x * inverse, dx = inverse * (d w - n mean(d w n))."""
    dot_TS = reduce_sum("tsn->ts", map_("tsn,tsn,sn->tsn", lambda d, e, w: d * w * e, d_TSN, x_TSN, weight_SN))
    pull_TS = elementwise(lambda dot, r: dot * r * r / float(STATE), dot_TS, inverse_TS)
    d_x_TSN = map_(
        "tsn,tsn,sn,ts,ts->tsn",
        lambda d, e, w, r, pull: r * (d * w - e * pull),
        d_TSN,
        x_TSN,
        weight_SN,
        inverse_TS,
        pull_TS,
    )
    product_TSN = map_("tsn,tsn,ts->tsn", lambda d, e, r: d * (e * r), d_TSN, x_TSN, inverse_TS)
    rows, *weight_shape = x_TSN.shape
    return d_x_TSN, reshape(sum_rows(reshape(product_TSN, (rows, prod(weight_shape)))), tuple(weight_shape))
