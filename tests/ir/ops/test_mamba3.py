"""mamba3: chunked form against the recurrence, gradients, continuation, golden values, refusals."""

from collections import Counter

import numpy as np
import pytest

from tests.ir.gradcheck import FUNCTION, traced
from trainc.core.errors import DtypeError, ShapeError
from trainc.ir.backward import backward
from trainc.ir.interpret import interpret
from trainc.ir.mlir import entry_block, scope
from trainc.ir.ops.add import add
from trainc.ir.ops.linear import linear
from trainc.ir.ops.mamba3 import mamba3, mamba3_continue
from trainc.ir.ops.mamba3.rotation import rotation
from trainc.ir.ops.mamba3.sizes import Sizes
from trainc.ir.ops.rms_norm import rms_norm
from trainc.ir.tensor import Aval
from trainc.passes.pipelines import TO_PRIMITIVES
from trainc.passes.runner import run_passes

LENGTHS = [1, 2, 63, 64, 65, 70, 131]
WEIGHTS = ("dt_bias", "b_norm", "c_norm", "b_bias", "c_bias", "d")
HEAD, STATE, ANGLES = 64, 128, 32

# The two forms add up to 64 * 128 products in different orders, through decays of order one: rounding errors of
# about sqrt(8192) * 2^-53 = 1e-14 of the largest element. Any wrong term is of order one.
TOLERANCE = 1e-11


def run(build, inputs, *, primitives=True):
    """Run a function of Tensors; its floats are f64, so that constants such as pi are not rounded to float32."""
    avals = [Aval(np.shape(x), "i32" if np.asarray(x).dtype.kind == "i" else "f64") for x in inputs]
    return interpret(traced(build, avals), FUNCTION, inputs, np.float64, primitives=primitives)


def assert_close(actual, expected, tolerance=TOLERANCE):
    np.testing.assert_allclose(actual, expected, rtol=0.0, atol=tolerance * np.max(np.abs(expected)))


def assert_same_angles(actual, expected):
    """Compare angles on the circle, and require them in [0, 2 pi]."""
    assert np.all((actual >= 0.0) & (actual <= 2.0 * np.pi))
    np.testing.assert_allclose(np.exp(1j * actual), np.exp(1j * expected), rtol=0.0, atol=TOLERANCE)


def draw(rng, *, batch, length, heads):
    """Return u and the weights; dt is of order 0.1 to 2, A from -4 to -0.2 with some tokens at the floor."""
    width = 131 * heads + 288
    u = rng.standard_normal((batch, length, width))
    u[:, ::7, 2 * HEAD * heads + 2 * STATE + heads] = -2e4
    shapes = [(heads,), (STATE,), (STATE,), (heads, STATE), (heads, STATE), (heads,)]
    weights = [rng.standard_normal(shape) for shape in shapes]
    weights[0] -= 1.0
    return [u, *weights]


def zero_state(batch, heads):
    shapes = [(ANGLES,), (HEAD, STATE), (STATE,), (HEAD,)]
    return [np.zeros((batch, heads, *shape)) for shape in shapes]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize(("batch", "heads"), [(1, 1), (2, 3)])
def test_chunked_form_equals_the_recurrence(length, batch, heads):
    inputs = draw(np.random.default_rng(length), batch=batch, length=length, heads=heads)
    (expected,) = run(mamba3, inputs, primitives=False)
    (actual,) = run(mamba3, inputs)
    assert_close(actual, expected)


@pytest.mark.parametrize("length", LENGTHS)
def test_gradients_are_derivatives_of_the_recurrence(length):
    rng = np.random.default_rng(length)
    inputs = draw(rng, batch=2 if length < 64 else 1, length=length, heads=2)
    d_o = rng.standard_normal((*inputs[0].shape[:2], 2 * HEAD))
    gradients = run(lambda *t: backward(mamba3(*t[:-1]), t[:-1], t[-1]), [*inputs, d_o])
    program = traced(mamba3, [Aval(x.shape, "f64") for x in inputs])
    # Too small for the differences to see: where A is at its floor it does not move.
    np.testing.assert_array_equal(gradients[0][:, ::7, 4 * HEAD + 2 * STATE + 2], 0.0)

    def value(position, distance, direction):
        moved = list(inputs)
        moved[position] = moved[position] + distance * direction
        return float(np.sum(d_o * interpret(program, FUNCTION, moved, np.float64)[0]))

    for position, gradient in enumerate(gradients):
        direction = rng.standard_normal(gradient.shape)
        # Four-point stencil: error h^4/30 f^(5) + 2^-52 |f| / h, below 1e-7 of |gradient| for h = 1e-4.
        near, far = (value(position, h, direction) - value(position, -h, direction) for h in (1e-4, 2e-4))
        slope = (8.0 * near - far) / 12e-4
        size = max(abs(slope), float(np.linalg.norm(gradient)))
        assert abs(float(np.sum(gradient * direction)) - slope) <= 1e-7 * size, ("u", *WEIGHTS)[position]


def test_gradient_of_tokens_that_never_step():
    # dt underflows to 0 in float64 too: scale is 0 and nothing may be divided by it.
    inputs = draw(np.random.default_rng(0), batch=1, length=66, heads=1)
    inputs[0][:, :, 2 * HEAD + 2 * STATE] = -800.0
    d_o = np.ones((1, 66, HEAD))
    with np.errstate(over="ignore"):  # sigmoid(-800) is 1/(1 + inf)
        gradients = run(lambda *t: backward(mamba3(*t[:-1]), t[:-1], t[-1]), [*inputs, d_o])
    assert all(np.all(np.isfinite(gradient)) for gradient in gradients)


def test_backward_repeats_nothing_of_the_forward_pass():
    def step(*tensors):
        o = mamba3(*tensors[:-1])
        return [o, *backward(o, tensors[:-1], tensors[-1])]

    shapes = [x.shape for x in draw(np.random.default_rng(0), batch=1, length=128, heads=1)]
    program = traced(step, [Aval(shape) for shape in (*shapes, (1, 128, HEAD))])
    run_passes(program, TO_PRIMITIVES)
    with scope():
        ops = [item.operation for item in entry_block(program.function(FUNCTION)).operations]
    specs = Counter(op.attributes["spec"].value for op in ops if op.name == "train.matmul")
    # One product for each formula: G, P v, q S and U forward; dP, dG k and dy S, dG^T q and P^T dy, and so on. The
    # angles have four: two sums, each inside chunks and over them.
    assert specs["xin,xnj->xij"] == 1
    assert sum(specs.values()) == 22


def test_angles_far_down_a_sequence_are_as_good_as_early_ones():
    rng = np.random.default_rng(8)
    sizes = Sizes(batch=1, length=64 * 250, heads=1)
    angle = rng.standard_normal((1, 250, 64, ANGLES)).astype(np.float32) + 0.3
    dt = rng.exponential(1.0, (1, 250, 64, 1)).astype(np.float32)
    theta = rng.uniform(0.0, 2.0 * np.pi, (1, 1, ANGLES)).astype(np.float32)

    def build(angle, dt, theta):
        turn = rotation(angle, dt, sizes, theta)
        return turn.cos, turn.sin, turn.theta_last

    turns = (np.float32(0.5) * np.tanh(angle) * dt).astype(np.float64).reshape(-1, ANGLES)
    exact = np.exp(1j * (np.cumsum(2.0 * np.pi * turns, axis=0) + theta[0]))
    cosine, sine, last = interpret(
        traced(build, [Aval(angle.shape), Aval(dt.shape), Aval(theta.shape)]), FUNCTION, [angle, dt, theta], np.float32
    )
    along = np.swapaxes(cosine + 1j * sine, 0, 1).reshape(-1, ANGLES)
    # Measured: 1.1e-6, and no more at the end than at the start. Sums of float32 angles are off by 8e-4 here.
    np.testing.assert_allclose(along, exact, rtol=0, atol=2e-6)
    np.testing.assert_allclose(np.exp(1j * last.ravel()), exact[-1], rtol=0, atol=2e-6)
    assert np.all((last >= 0.0) & (last <= np.float32(2.0 * np.pi)))


@pytest.mark.parametrize(("rows", "length"), [(64, 60), (130, 100), (130, 128), (130, 1), (131, 131), (5, 3), (1, 1)])
def test_continuation_equals_the_recurrence(rows, length):
    rng = np.random.default_rng(rows + length)
    state = [rng.standard_normal(zero.shape) for zero in zero_state(2, 2)]
    state[0] = np.mod(state[0], 2.0 * np.pi)
    inputs = [*draw(rng, batch=2, length=rows, heads=2), *state, np.array(length, np.int32)]
    expected = run(mamba3_continue, inputs, primitives=False)
    actual = run(mamba3_continue, inputs)
    assert_close(actual[0][:, :length], expected[0][:, :length])
    assert np.all(np.isfinite(actual[0]))
    assert_same_angles(actual[1], expected[1])
    for got, want in zip(actual[2:], expected[2:], strict=True):
        assert_close(got, want)


def test_prefill_and_single_steps_equal_one_pass():
    u, *weights = draw(np.random.default_rng(3), batch=2, length=70, heads=2)
    (expected,) = run(mamba3, [u, *weights])
    prompt = np.concatenate([u[:, :60], np.full_like(u[:, :4], 9.0)], axis=1)
    o, *state = run(mamba3_continue, [prompt, *weights, *zero_state(2, 2), np.array(60, np.int32)])
    outputs = [o[:, :60]]
    for t in range(60, 70):
        o, *state = run(mamba3_continue, [u[:, t : t + 1], *weights, *state, np.array(1, np.int32)])
        outputs.append(o)
    assert_close(np.concatenate(outputs, axis=1), expected)


def test_rows_past_the_length_do_not_matter():
    u, *weights = draw(np.random.default_rng(5), batch=1, length=130, heads=1)
    other = u.copy()
    other[:, 90:] = 1e3
    length = np.array(90, np.int32)
    first, second = (run(mamba3_continue, [x, *weights, *zero_state(1, 1), length]) for x in (u, other))
    np.testing.assert_array_equal(first[0][:, :90], second[0][:, :90])
    for a, b in zip(first[1:], second[1:], strict=True):
        np.testing.assert_array_equal(a, b)


GOLDEN_SHAPES = {
    "block_norm.weight": (32,),
    "in_proj.weight": (419, 32),
    "dt_bias": (1,),
    "B_norm.weight": (128,),
    "C_norm.weight": (128,),
    "B_bias": (1, 128),
    "C_bias": (1, 128),
    "D": (1,),
    "out_proj.weight": (32, 64),
}


def test_golden_block(golden):
    case = golden("samba")["mamba3_block"]
    rng = np.random.default_rng(11)
    weights = {name: (rng.standard_normal(shape) * 0.3).astype(np.float32) for name, shape in GOLDEN_SHAPES.items()}
    x, d_y = (rng.standard_normal((2, 67, 32)).astype(np.float32) for _ in range(2))

    def step(x, block_norm, in_proj, *rest):
        *mixer, out_proj, cotangent = rest
        y = add(x, linear(mamba3(linear(rms_norm(x, block_norm, 1e-5), in_proj), *mixer), out_proj))
        return [y, *backward(y, [x, block_norm, in_proj, *mixer, out_proj], cotangent)]

    y, *gradients = run(step, [x, *weights.values(), d_y])
    # The golden run computed in float32.
    np.testing.assert_allclose(y.ravel()[:8], case["y_first8"], rtol=5e-5)
    for name, gradient in zip(("x", *weights), gradients, strict=True):
        assert np.linalg.norm(gradient) == pytest.approx(case["grad_l2"][name], rel=5e-5), name
        scale = np.max(np.abs(case["grad_first4"][name]))
        np.testing.assert_allclose(gradient.ravel()[:4], case["grad_first4"][name], rtol=0, atol=5e-5 * scale)


def test_golden_state(golden):
    case = golden("samba")["mamba3_block"]
    rng = np.random.default_rng(11)
    weights = {name: (rng.standard_normal(shape) * 0.3).astype(np.float32) for name, shape in GOLDEN_SHAPES.items()}
    x = rng.standard_normal((2, 67, 32)).astype(np.float32)

    def step(x, block_norm, in_proj, *rest):
        return mamba3_continue(linear(rms_norm(x, block_norm, 1e-5), in_proj), *rest)

    mixer = list(weights.values())[:-1]
    _, theta, h, k_last, v_last = run(step, [x, *mixer, *zero_state(2, 1), np.array(67, np.int32)])
    assert np.linalg.norm(h) == pytest.approx(case["h_last_l2"], rel=5e-5)
    np.testing.assert_allclose(theta.ravel()[:4], case["theta_last_first4"], rtol=0, atol=1e-4)
    np.testing.assert_allclose(k_last.ravel()[:4], case["k_last_first4"], rtol=0, atol=1e-4)
    np.testing.assert_allclose(v_last.ravel()[:4], case["v_last_first4"], rtol=0, atol=1e-5)


def test_refusals_name_the_op():
    shapes = [x.shape for x in draw(np.random.default_rng(0), batch=1, length=3, heads=2)]
    avals = [Aval(shape) for shape in shapes]
    with pytest.raises(ShapeError, match=r"train\.mamba3\(.*expected u \(B, L, 550\) for 2 heads, got \(1, 3, 551\)"):
        traced(mamba3, [Aval((1, 3, 551)), *avals[1:]])
    with pytest.raises(ShapeError, match=r"train\.mamba3\(.*b_bias of shape \(2, 128\)"):
        traced(mamba3, [*avals[:4], Aval((128, 2)), *avals[5:]])
    with pytest.raises(DtypeError, match=r"train\.mamba3\(.*dt_bias of dtype f32"):
        traced(mamba3, [avals[0], Aval((2,), "f64"), *avals[2:]])
    state = [Aval(zero.shape) for zero in zero_state(1, 2)]
    with pytest.raises(DtypeError, match=r"train\.mamba3_continue\(.*length of dtype i32"):
        traced(mamba3_continue, [*avals, *state, Aval(())])
    with pytest.raises(ShapeError, match=r"train\.mamba3_continue\(.*h of shape \(1, 2, 64, 128\)"):
        traced(mamba3_continue, [*avals, state[0], Aval((1, 2, 128, 64)), *state[2:], Aval((), "i32")])
