"""TransformerBlock: exact values and gradients, reading piece by piece, its caches, and what is refused."""

import numpy as np
import pytest

from tests.frontends.blocks.golden_block import assert_close, exact_gradients
from trainc.core.errors import ArgumentTypeError, ConfigError, ShapeError, UnsupportedError, UsageError
from trainc.frontends.blocks.kernels import FORWARD, BlockKernel
from trainc.frontends.blocks.states import Mamba3State, TransformerState
from trainc.frontends.blocks.tracing.graph import block_source
from trainc.frontends.blocks.transformer import FIXED, TransformerBlock
from trainc.frontends.samba.config import SambaConfig
from trainc.ir.interpret import interpret

ROWS, WIDTH, HEADS, KV, HEAD, HIDDEN = 2, 24, 4, 2, 6, 20
CLOSE = 1e-5  # float32 on both sides, values of order one, sums of at most 70 terms


def _block() -> TransformerBlock:
    rng = np.random.default_rng(5)
    config = SambaConfig(2, WIDTH, ("attention",), n_heads=HEADS, n_kv_heads=KV, intermediate=HIDDEN)
    weights = {
        name: (1.0 + 0.3 * rng.standard_normal(shape) if len(shape) == 1 else 0.3 * rng.standard_normal(shape))
        for name, shape in config.block_shapes("attention")
    }
    return TransformerBlock(WIDTH, HEADS, HIDDEN, {k: w.astype(np.float32) for k, w in weights.items()}, n_kv_heads=KV)


BLOCK = _block()
X, DY = (np.random.default_rng(seed).standard_normal((ROWS, 70, WIDTH)).astype(np.float32) for seed in (6, 7))


@pytest.fixture(scope="module")
def y():
    return BLOCK.forward(X)


def test_output_is_exact_to_rounding(y):
    source = block_source(BlockKernel(BLOCK._config, "deterministic", FORWARD, ROWS, 70))
    (exact,) = interpret(source.programs[FORWARD], FORWARD, [*BLOCK.parameters().values(), X])
    np.testing.assert_allclose(y, exact, rtol=0, atol=2e-6 * np.abs(exact).max())


def test_gradients_are_exact_to_rounding():
    found = BLOCK.backward(X, DY)
    assert list(found) == ["x", *(name for name, _ in BLOCK.block_shapes())]
    assert_close(found, exact_gradients(BLOCK, X, DY), 5e-5)


def test_sixty_and_ten_are_seventy(y):
    state = BLOCK.allocate_state(ROWS, 70)
    first = BLOCK.forward(np.ascontiguousarray(X[:, :60]), state)
    np.testing.assert_allclose(first, y[:, :60], rtol=0, atol=CLOSE)
    for t in range(60, 70):
        np.testing.assert_allclose(BLOCK.step(np.ascontiguousarray(X[:, t]), state), y[:, t], rtol=0, atol=CLOSE)
    with pytest.raises(UsageError, match="max_tokens=70 positions; 70 are used and 1 more"):
        BLOCK.step(np.ascontiguousarray(X[:, 0]), state)
    assert state.cached_tokens == 70


def test_the_caches_are_packed():
    state = BLOCK.allocate_state(ROWS, 70)
    assert not state.k_cache.any()
    for t in range(2):
        BLOCK.step(np.ascontiguousarray(X[:, t : t + 1]), state)
    assert state.keys().shape == state.values().shape == (ROWS, KV, 2, HEAD)
    for flat, used in ((state.k_cache, state.keys()), (state.v_cache, state.values())):
        assert flat.shape == (ROWS * KV * 70 * HEAD,)
        np.testing.assert_array_equal(flat[: used.size].reshape(used.shape), used)
        assert not flat[used.size :].any()
    # The first token stands at position 0, so its key is not rotated.
    w = {name: array.astype(np.float64) for name, array in BLOCK.parameters().items()}
    x = X[:, 0].astype(np.float64)
    normed = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * w["input_layernorm.weight"]
    for cached, name in ((state.keys(), "k_proj"), (state.values(), "v_proj")):
        exact = (normed @ w[f"{name}.weight"].T).reshape(ROWS, KV, HEAD)
        np.testing.assert_allclose(cached[:, :, 0], exact, rtol=0, atol=2e-6)


@pytest.mark.parametrize("name", FIXED)
def test_other_variants_are_refused_by_name(name):
    _check({name: "another"}, UnsupportedError, f"^{name} must be")
    TransformerBlock(WIDTH, HEADS, HIDDEN, BLOCK.parameters(), n_kv_heads=KV, **{name: FIXED[name]})


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"sliding": 3}, ArgumentTypeError, "sliding"),
        ({"n_heads": 5}, ConfigError, "n_heads"),
        ({"n_kv_heads": 3}, ConfigError, "n_kv_heads"),
        ({"n_heads": 8}, ConfigError, "head_dim must be even"),
        ({"head_dim": 8}, ConfigError, "head_dim"),
        ({"intermediate": 0}, ConfigError, "intermediate"),
        ({"weights": {}}, ShapeError, "missing"),
        ({"numeric_mode": "identical"}, UnsupportedError, "identical"),
    ],
)
def test_what_a_block_cannot_be_made_of(change, error, message):
    _check(change, error, message)


def _check(change, error, message):
    settings = {"d_model": WIDTH, "n_heads": HEADS, "intermediate": HIDDEN, "n_kv_heads": KV}
    with pytest.raises(error, match=message):
        TransformerBlock(**settings | {"weights": BLOCK.parameters()} | change)


def test_refused_calls():
    token = X[:, 0].copy()
    for call, error, message in (
        (lambda: BLOCK.step(token, Mamba3State(ROWS, 32)), ArgumentTypeError, "TransformerState"),
        (lambda: BLOCK.step(token, TransformerState(ROWS, KV, HEAD + 2, 9)), ShapeError, "another shape"),
        (lambda: BLOCK.step(token, TransformerState(3, KV, HEAD, 9)), ShapeError, "3 rows, got 2"),
        (lambda: BLOCK.forward(X, BLOCK.allocate_state(ROWS, 69)), UsageError, "max_tokens=69"),
        (lambda: BLOCK.forward(np.zeros((1, 8193, WIDTH), np.float32)), UsageError, "8192"),
        (lambda: BLOCK.allocate_state(ROWS, 8193), ConfigError, "max_tokens"),
        (lambda: BLOCK.allocate_state(ROWS, 0), ConfigError, "max_tokens"),
    ):
        with pytest.raises(error, match=message):
            call()
