import numpy as np
import pytest

from tests.ir.gradcheck import check_forward, run, traced
from trainc.core.adamw import COEFFICIENT_NAMES, AdamWSettings, coefficients
from trainc.core.errors import DtypeError, ShapeError
from trainc.ir.ops.adamw import adamw
from trainc.ir.tensor import Aval


def build(p, m, v, g, *scalars):
    return adamw(p, m, v, g, dict(zip(COEFFICIENT_NAMES, scalars, strict=True)))


def step_inputs(rng, size, settings, step, clip):
    p, m, g = (rng.standard_normal(size) for _ in range(3))
    return [p, m, rng.random(size), g, *coefficients(settings, settings.lr, step, clip).values()]


@pytest.mark.parametrize(
    ("size", "step", "clip", "decay"), [(1, 1, 1.0, 0.0), (67, 2, 0.25, 0.1), (64, 1000, 1.0, 0.01)]
)
def test_one_step(size, step, clip, decay):
    settings = AdamWSettings(lr=0.01, betas=(0.8, 0.95), weight_decay=decay)
    check_forward(build, step_inputs(np.random.default_rng(14), size, settings, step, clip))


def test_several_steps_are_the_published_algorithm():
    """Moments from zero over five steps against AdamW with its bias corrections written out."""
    rng = np.random.default_rng(15)
    settings = AdamWSettings(lr=0.02, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.3)
    lr, (b1, b2) = settings.lr, settings.betas
    p = expected = rng.standard_normal(10)
    m, v, mean, square = (np.zeros(10) for _ in range(4))
    for t in range(1, 6):
        g = rng.standard_normal(10)
        p, m, v = run(build, [p, m, v, g, *coefficients(settings, lr, t, 0.5).values()])
        mean = b1 * mean + (1.0 - b1) * 0.5 * g
        square = b2 * square + (1.0 - b2) * (0.5 * g) ** 2
        corrected = mean / (1.0 - b1**t) / (np.sqrt(square / (1.0 - b2**t)) + settings.eps)
        expected = expected - lr * settings.weight_decay * expected - lr * corrected
    # The coefficients are float32: relative errors of 2^-24, up to 2^-24 / (1 - b2) = 6e-6 in 1 - b2^t at t = 1,
    # and each step moves p by lr = 0.02.
    np.testing.assert_allclose(p, expected, rtol=0.0, atol=5 * 0.02 * 6e-6)


def test_zero_gradients_from_zero_moments_only_decay():
    settings = AdamWSettings(weight_decay=0.5)
    scalars = coefficients(settings, 0.1, 1)
    p, m, v = run(build, [np.array([2.0]), np.zeros(1), np.zeros(1), np.zeros(1), *scalars.values()])
    assert p == 2.0 * float(scalars["decay"])
    assert m == v == 0.0


def test_refusals_name_the_op():
    good = [Aval((6,))] * 4 + [Aval(())] * len(COEFFICIENT_NAMES)
    for position, aval, error, text in [
        (0, Aval((2, 3)), ShapeError, r"p \(N,\)"),
        (2, Aval((5,)), ShapeError, r"v of shape \(6,\)"),
        (3, Aval((6,), "i32"), DtypeError, "g of dtype f32"),
        (4, Aval((1,)), ShapeError, r"clip of shape \(\)"),
        (12, Aval((), "f64"), DtypeError, "step of dtype f32"),
    ]:
        avals = [aval if i == position else a for i, a in enumerate(good)]
        with pytest.raises(error, match=rf"train\.adamw.*{text}"):
            traced(build, avals)
    with pytest.raises(ShapeError, match=r"train\.adamw.*got \('clip',\)"):
        traced(lambda p, s: adamw(p, p, p, p, {"clip": s}), [Aval((6,)), Aval(())])
