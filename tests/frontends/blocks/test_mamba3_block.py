"""Mamba3Block: golden values, exact gradients, reading piece by piece, and what is refused."""

import numpy as np
import pytest

from tests.frontends.blocks.golden_block import LENGTH, ROWS, WIDTH, assert_close, exact_gradients, golden_block
from trainc.core.errors import (
    ArgumentTypeError,
    ConfigError,
    DtypeError,
    NotFiniteError,
    ShapeError,
    UnsupportedError,
    UsageError,
)
from trainc.frontends.blocks.kernels import CONTINUE, MAX_LOADED, BlockKernel, load_block
from trainc.frontends.blocks.mamba3 import Mamba3Block
from trainc.frontends.blocks.states import Mamba3State, TransformerState

BLOCK, X, DY = golden_block()

# Both sides compute in float32: values of order one through sums of 64 * 128 products.
CLOSE = 1e-5


@pytest.fixture(scope="module")
def y():
    return BLOCK.forward(X)


def test_golden_output_and_gradients(golden, y):
    case = golden("samba")["mamba3_block"]
    np.testing.assert_allclose(y.ravel()[:8], case["y_first8"], rtol=0, atol=2e-6)
    gradients = BLOCK.backward(X, DY)
    assert list(gradients) == ["x", *(name for name, _ in BLOCK.block_shapes())]
    norms = {name: float(np.linalg.norm(g.astype(np.float64))) for name, g in gradients.items()}
    assert norms == pytest.approx(case["grad_l2"], rel=5e-5)


def test_golden_state(golden, y):
    case = golden("samba")["mamba3_block"]
    state = BLOCK.allocate_state(ROWS)
    np.testing.assert_allclose(BLOCK.forward(X, state), y, rtol=0, atol=2e-6)
    assert state.tokens == LENGTH
    assert np.linalg.norm(state.h_last_.astype(np.float64)) == pytest.approx(case["h_last_l2"], rel=5e-5)
    np.testing.assert_allclose(state.k_last_.ravel()[:4], case["k_last_first4"], rtol=0, atol=2e-6)
    np.testing.assert_allclose(state.v_last_.ravel()[:4], case["v_last_first4"], rtol=0, atol=2e-6)
    # The sum over the tokens adds next to nothing. What it adds up is the projection of x, whose float32 rounding
    # alone moves these angles by up to 3.3e-6 from exact ones; the golden ones are up to 1.8e-6 off.
    np.testing.assert_allclose(state.theta_last_.ravel()[:4], case["theta_last_first4"], rtol=0, atol=3e-6)


def test_gradients_are_exact_to_rounding():
    dy = np.random.default_rng(3).standard_normal(X.shape).astype(np.float32)
    # Norms of float32 errors: measured up to 3e-6 (dt_bias, where terms cancel).
    assert_close(BLOCK.backward(X, dy), exact_gradients(BLOCK, X, dy), 5e-5)


def test_pieces_give_what_one_call_gives(y):
    """57 tokens, then 10 single ones, are the rows of a whole forward pass."""
    state = BLOCK.allocate_state(ROWS)
    read = [BLOCK.forward(np.ascontiguousarray(X[:, :57]), state)]
    read += [BLOCK.step(np.ascontiguousarray(X[:, t : t + 1]), state) for t in range(57, 66)]
    last = BLOCK.step(np.ascontiguousarray(X[:, 66]), state)
    np.testing.assert_allclose(np.concatenate([*read, last[:, None]], axis=1), y, rtol=0, atol=CLOSE)


def test_sixty_and_ten_are_seventy():
    x = np.random.default_rng(4).standard_normal((ROWS, 70, WIDTH)).astype(np.float32)
    whole, pieces = BLOCK.allocate_state(ROWS), BLOCK.allocate_state(ROWS)
    at_once = BLOCK.forward(x, whole)
    np.testing.assert_allclose(
        BLOCK.forward(np.ascontiguousarray(x[:, :60]), pieces), at_once[:, :60], rtol=0, atol=CLOSE
    )
    for t in range(60, 70):
        step = BLOCK.step(np.ascontiguousarray(x[:, t]), pieces)
        np.testing.assert_allclose(step, at_once[:, t], rtol=0, atol=CLOSE)
    for name in ("theta", "h", "k_last", "v_last"):
        scale = np.abs(getattr(whole, name)).max()
        np.testing.assert_allclose(getattr(pieces, name), getattr(whole, name), rtol=0, atol=CLOSE * scale)


def test_a_state_can_start_from_another():
    first, second = BLOCK.allocate_state(ROWS), BLOCK.allocate_state(ROWS)
    token = np.ascontiguousarray(X[:, 0])
    BLOCK.step(token, first)
    second.set_input_states(first.theta_last_, first.h_last_, first.k_last_, first.v_last_)
    np.testing.assert_array_equal(BLOCK.step(token, first), BLOCK.step(token, second))
    np.testing.assert_array_equal(first.h, second.h)


def test_only_a_fresh_state_takes_input_states():
    state = BLOCK.allocate_state(ROWS)
    with pytest.raises(UsageError, match="h_last_ is there after a call"):
        _ = state.h_last_
    given = [np.ones((ROWS, 1, *tail), np.float32) for tail in ((32,), (64, 128), (128,), (64,))]
    for position, (wrong, error) in enumerate(
        [
            (np.ones((ROWS, 1, 31), np.float32), ShapeError),
            (given[1].astype(np.float64), DtypeError),
            (np.full_like(given[2], np.nan), NotFiniteError),
            (np.ones((ROWS, 1, 128), np.float32)[..., ::2], ShapeError),
        ]
    ):
        with pytest.raises(error, match=r"^(theta|h|k|v) must"):
            state.set_input_states(*[wrong if i == position else a for i, a in enumerate(given)])
    assert not state.h.any()
    state.set_input_states(*given)
    with pytest.raises(UsageError, match="fresh"):
        state.set_input_states(*given)
    used = BLOCK.allocate_state(ROWS)
    BLOCK.step(np.ascontiguousarray(X[:, 0]), used)
    with pytest.raises(UsageError, match="fresh"):
        used.set_input_states(*given)


def test_blocks_of_one_shape_share_their_kernels():
    one = BlockKernel(BLOCK._config, BLOCK.numeric_mode, CONTINUE, ROWS, 1)
    BLOCK.step(np.ascontiguousarray(X[:, 0]), BLOCK.allocate_state(ROWS))
    before = load_block.cache_info()
    other = Mamba3Block(WIDTH, BLOCK.parameters())
    other.step(np.ascontiguousarray(X[:, 0]), other.allocate_state(ROWS))
    after = load_block.cache_info()
    assert (after.misses, after.hits) == (before.misses, before.hits + 1)
    assert after.maxsize == MAX_LOADED
    assert load_block(one).manifest.numeric_mode == "deterministic"


def test_weights_are_copied_and_live():
    weights = {name: array.copy() for name, array in BLOCK.parameters().items()}
    by_order = Mamba3Block(WIDTH, list(weights.values()))
    weights["D"][0] = 9.0
    assert by_order.parameters()["D"][0] == BLOCK.parameters()["D"][0]
    token, before = np.ascontiguousarray(X[:, 0]), BLOCK.step(np.ascontiguousarray(X[:, 0]), BLOCK.allocate_state(ROWS))
    np.testing.assert_array_equal(by_order.step(token, by_order.allocate_state(ROWS)), before)
    by_order.parameters()["D"][0] += 1.0
    assert np.abs(by_order.step(token, by_order.allocate_state(ROWS)) - before).max() > 1e-3
    by_order.load_weights(BLOCK.parameters())
    np.testing.assert_array_equal(by_order.step(token, by_order.allocate_state(ROWS)), before)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"d_model": 48}, ConfigError, "d_model"),
        ({"numeric_mode": "identical"}, UnsupportedError, "identical"),
        ({"numeric_mode": "quick"}, UsageError, "numeric_mode"),
        ({"weights": 3}, ArgumentTypeError, "weights"),
        ({"weights": [np.ones(1, np.float32)]}, ShapeError, "9 arrays block_norm.weight"),
        ({"weights": {}}, ShapeError, "missing"),
        ({"weights": {**BLOCK.parameters(), "D": np.ones(2, np.float32)}}, ShapeError, "'D'"),
        ({"weights": {**BLOCK.parameters(), "D": np.ones(1)}}, DtypeError, "'D'"),
        ({"weights": {**BLOCK.parameters(), "D": np.full(1, np.inf, np.float32)}}, NotFiniteError, "'D'"),
    ],
)
def test_what_a_block_cannot_be_made_of(change, error, message):
    with pytest.raises(error, match=message):
        Mamba3Block(**{"d_model": WIDTH, "weights": BLOCK.parameters()} | change)


def test_refused_calls_leave_the_state_as_it_was():
    state = BLOCK.allocate_state(ROWS)
    for call, error, message in (
        (lambda: BLOCK.forward(X.astype(np.float64), state), DtypeError, "x must"),
        (lambda: BLOCK.forward(X[0], state), ShapeError, "x must"),
        (lambda: BLOCK.forward(X[:, :0], state), ShapeError, "x must"),
        (lambda: BLOCK.forward(X[:, :9], state), ShapeError, "x must be C-contiguous"),
        (lambda: BLOCK.forward(X[:1], state), ShapeError, "2 rows, got 1"),
        (lambda: BLOCK.backward(X, DY[:1]), ShapeError, "dy must"),
        (lambda: BLOCK.step(X, state), ShapeError, r"\(B, 32\) or \(B, 1, 32\)"),
        (lambda: BLOCK.step(X[:, 0].copy(), None), ArgumentTypeError, "Mamba3State"),
        (lambda: BLOCK.step(X[:, 0].copy(), TransformerState(2, 1, 2, 9)), ArgumentTypeError, "Mamba3State"),
        (lambda: BLOCK.step(X[:, 0].copy(), Mamba3State(2, 64)), ShapeError, "another shape"),
        (lambda: Mamba3State(0, 32), ConfigError, "batch_size"),
        (lambda: Mamba3State(1, 33), ConfigError, "d_model"),
    ):
        with pytest.raises(error, match=message):
            call()
    assert state.tokens == 0
    assert not state.h.any()
