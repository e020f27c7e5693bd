import numpy as np
import pytest

from tests.ir.gradcheck import check_forward, run, traced
from trainc.core.errors import DtypeError, ShapeError
from trainc.core.sgd import MOMENTUM_COEFFICIENT_NAMES, PLAIN_COEFFICIENT_NAMES, SGDSettings, coefficients
from trainc.ir.ops.sgd import sgd, sgd_momentum
from trainc.ir.tensor import Aval


def plain(p, g, *scalars):
    return sgd(p, g, dict(zip(PLAIN_COEFFICIENT_NAMES, scalars, strict=True)))


def with_momentum(p, b, g, *scalars):
    return sgd_momentum(p, b, g, dict(zip(MOMENTUM_COEFFICIENT_NAMES, scalars, strict=True)))


@pytest.mark.parametrize(("size", "sign", "decay"), [(1, 1.0, 0.0), (67, -1.0, 0.25), (64, 1.0, 0.5)])
def test_plain(size, sign, decay):
    p, g = np.random.default_rng(3).standard_normal((2, size))
    scalars = coefficients(SGDSettings(weight_decay=decay), 0.1, sign=sign, first=False).values()
    check_forward(plain, [p, g, *scalars])


@pytest.mark.parametrize(("nesterov", "first"), [(False, False), (False, True), (True, False), (True, True)])
def test_momentum(nesterov, first):
    p, b, g = np.random.default_rng(4).standard_normal((3, 67))
    settings = SGDSettings(momentum=0.9, dampening=0.0 if nesterov else 0.5, weight_decay=0.1, nesterov=nesterov)
    scalars = coefficients(settings, 0.1, sign=-1.0, first=first).values()
    check_forward(with_momentum, [p, b, g, *scalars])


def test_several_steps_are_the_published_algorithm():
    """Four steps by hand; the first one takes the gradient whole, whatever the dampening."""
    settings = SGDSettings(momentum=0.5, dampening=0.25)
    p, b, expected, momentum = np.array([1.0]), np.array([np.nan]), 1.0, None
    for gradient in (1.0, -2.0, 4.0, 0.5):
        scalars = coefficients(settings, 0.125, sign=1.0, first=momentum is None).values()
        p, b = run(with_momentum, [p, b, np.array([gradient]), *scalars])
        momentum = gradient if momentum is None else 0.5 * momentum + 0.75 * gradient
        expected -= 0.125 * momentum
        assert (p[0], b[0]) == (expected, momentum)


def test_refusals_name_the_op():
    good = [Aval((6,))] * 3 + [Aval(())] * len(MOMENTUM_COEFFICIENT_NAMES)
    for position, aval, error, text in [
        (0, Aval((2, 3)), ShapeError, r"p \(N,\)"),
        (1, Aval((5,)), ShapeError, r"b of shape \(6,\)"),
        (2, Aval((6,), "i32"), DtypeError, "g of dtype f32"),
        (3, Aval((1,)), ShapeError, r"sign of shape \(\)"),
    ]:
        avals = [aval if i == position else a for i, a in enumerate(good)]
        with pytest.raises(error, match=rf"train\.sgd_momentum.*{text}"):
            traced(with_momentum, avals)
    with pytest.raises(ShapeError, match=r"train\.sgd: .*got \('lr',\)"):
        traced(lambda p, s: sgd(p, p, {"lr": s}), [Aval((6,)), Aval(())])
