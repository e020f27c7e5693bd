import numpy as np
import pytest

from tests.ir.gradcheck import check_forward, run, traced
from trainc.core.adam import COEFFICIENT_NAMES, coefficients
from trainc.core.adamw import AdamWSettings
from trainc.core.errors import DtypeError, ShapeError
from trainc.ir.ops.adam import adam
from trainc.ir.tensor import Aval


def build(p, m, v, g, *scalars):
    return adam(p, m, v, g, dict(zip(COEFFICIENT_NAMES, scalars, strict=True)))


@pytest.mark.parametrize(
    ("size", "step", "clip", "decay"), [(1, 1, 1.0, 0.0), (67, 2, 0.25, 0.1), (64, 1000, -1.0, 0.01)]
)
def test_one_step(size, step, clip, decay):
    settings = AdamWSettings(betas=(0.8, 0.95), weight_decay=decay)
    rng = np.random.default_rng(14)
    p, m, g = (rng.standard_normal(size) for _ in range(3))
    check_forward(build, [p, m, rng.random(size), g, *coefficients(settings, 0.01, step, clip).values()])


def test_several_steps_are_the_published_algorithm():
    """Moments from zero over five steps against Adam with L2 regularisation and its corrections written out."""
    rng = np.random.default_rng(15)
    lr, b1, b2, decay = 0.02, 0.875, 0.96875, 0.25  # exact in float32
    settings = AdamWSettings(betas=(b1, b2), eps=2.0**-20, weight_decay=decay)
    p = expected = rng.standard_normal(10)
    m, v, mean, square = (np.zeros(10) for _ in range(4))
    for t in range(1, 6):
        g = rng.standard_normal(10)
        p, m, v = run(build, [p, m, v, g, *coefficients(settings, lr, t).values()])
        g = g + decay * expected
        mean = b1 * mean + (1.0 - b1) * g
        square = b2 * square + (1.0 - b2) * g**2
        corrected = mean / (1.0 - b1**t) / (np.sqrt(square / (1.0 - b2**t)) + 2.0**-20)
        expected = expected - lr * corrected
    # lr / (1 - b1^t) and sqrt(1 - b2^t) are float32: 2^-23 of a move of lr = 0.02 a step, a few roundings each.
    np.testing.assert_allclose(p, expected, rtol=0.0, atol=5 * 4 * 0.02 * 2.0**-23)


def test_without_decay_a_parameter_is_not_read_into_the_gradient():
    settings = AdamWSettings(weight_decay=0.0)
    scalars = coefficients(settings, 0.0, 1).values()
    with np.errstate(invalid="ignore"):  # the decayed gradient is worked out and not chosen
        _, m, _ = run(build, [np.array([np.inf]), np.zeros(1), np.zeros(1), np.ones(1), *scalars])
    assert np.isfinite(m).all()


def test_refusals_name_the_op():
    good = [Aval((6,))] * 4 + [Aval(())] * len(COEFFICIENT_NAMES)
    for position, aval, error, text in [
        (0, Aval((2, 3)), ShapeError, r"p \(N,\)"),
        (1, Aval((5,)), ShapeError, r"m of shape \(6,\)"),
        (3, Aval((6,), "i32"), DtypeError, "g of dtype f32"),
        (4, Aval((1,)), ShapeError, r"clip of shape \(\)"),
    ]:
        avals = [aval if i == position else a for i, a in enumerate(good)]
        with pytest.raises(error, match=rf"train\.adam\(.*{text}"):
            traced(build, avals)
    with pytest.raises(ShapeError, match=r"train\.adam: .*got \('clip',\)"):
        traced(lambda p, s: adam(p, p, p, p, {"clip": s}), [Aval((6,)), Aval(())])
