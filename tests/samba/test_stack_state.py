"""SambaStack reading: padded rows, and sequences read piece by piece from a state."""

import gc
import weakref

import numpy as np
import pytest

from tests.samba.stacks import MAMBA, PLAIN, batch, stack
from trainc.frontends.samba.buckets import LoadedShapes, Shape
from trainc.frontends.samba.stack import SambaStack
from trainc.frontends.samba.state import Mamba3State, SambaState, TransformerState

LENGTH, PROMPT, ROWS = 70, 60, 2
IDS, _ = batch(PLAIN, ROWS, LENGTH)

# The same float32 terms in other orders; 2e-6 (docs/stack.md) and 1e-5 (docs/numerics.md) are promised, measured 3e-7.
ROW_TOLERANCE = 2e-6
STATE_TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def model() -> SambaStack:
    """A stack whose weights are moved away from their initial values, where some are all ones."""
    made = stack(PLAIN)
    rng = np.random.default_rng(1)
    for view in made.arrays:
        view += 0.1 * rng.standard_normal(view.shape).astype(np.float32)
    return made


@pytest.fixture(scope="module")
def logits(model: SambaStack) -> np.ndarray:
    return model.forward(IDS)


def test_forward_gives_every_position(logits: np.ndarray) -> None:
    assert (logits.shape, logits.dtype) == ((ROWS, LENGTH, PLAIN.vocab), np.float32)


def test_a_padded_row_is_the_row_alone(model: SambaStack) -> None:
    ids = IDS.copy()
    ids[1, 33:] = -7  # padding may hold anything
    found = model.forward(ids, lengths=[LENGTH, 33])
    np.testing.assert_allclose(found[1, :33], model.forward(IDS[1:, :33])[0], rtol=0, atol=ROW_TOLERANCE)
    assert found[1, 33:].tobytes() == bytes(found[1, 33:].nbytes)  # +0.0, every bit
    assert ids[1, 33] == -7


def test_a_full_row_is_not_changed_by_lengths(model: SambaStack, logits: np.ndarray) -> None:
    found = model.forward(IDS, lengths=np.array([LENGTH, 1]))
    assert found[0].tobytes() == logits[0].tobytes()
    assert found[1, 0].tobytes() == logits[1, 0].tobytes()


@pytest.mark.parametrize("pieces", [(PROMPT, 10), (PROMPT, *[1] * 10), (LENGTH,)])
def test_pieces_equal_one_forward(model: SambaStack, logits: np.ndarray, pieces: tuple[int, ...]) -> None:
    state = model.allocate_state(ROWS, LENGTH)
    found, start = [], 0
    for tokens in pieces:
        found.append(model.forward(IDS[:, start : start + tokens], state))
        assert found[-1].shape == (ROWS, tokens, PLAIN.vocab)
        start += tokens
        assert state.position == start
    np.testing.assert_allclose(np.concatenate(found, 1), logits, rtol=0, atol=STATE_TOLERANCE)


def test_step_reads_one_token_a_row(model: SambaStack, logits: np.ndarray) -> None:
    flat, column = (model.allocate_state(ROWS, LENGTH) for _ in range(2))
    for state in (flat, column):
        model.forward(IDS[:, :PROMPT], state)
    for at in range(PROMPT, LENGTH):
        found = model.step(IDS[:, at], flat)
        assert found.shape == (ROWS, PLAIN.vocab)
        np.testing.assert_allclose(found, logits[:, at], rtol=0, atol=STATE_TOLERANCE)
        assert found.tobytes() == model.step(IDS[:, at : at + 1].tolist(), column).tobytes()


def test_the_state_holds_a_layer_each(model: SambaStack) -> None:
    state = model.allocate_state(ROWS, LENGTH)
    mamba, attention = state.layers
    assert isinstance(mamba, Mamba3State)
    assert isinstance(attention, TransformerState)
    assert not mamba.h.any()
    assert attention.keys().shape == (ROWS, 1, 0, 16)
    model.forward(IDS[:, :PROMPT], state)
    assert mamba.h.any()
    assert mamba.theta.shape == (ROWS, 1, 32)
    assert (mamba.k_last.shape, mamba.v_last.shape) == ((ROWS, 1, 128), (ROWS, 1, 64))
    assert attention.keys().shape == attention.values().shape == (ROWS, 1, PROMPT, 16)
    assert attention.cached_tokens == state.position == PROMPT
    assert (state.batch_size, state.max_tokens) == (ROWS, LENGTH)


def test_attention_holds_max_tokens_and_not_more(model: SambaStack) -> None:
    state = model.allocate_state(ROWS, LENGTH - 4)
    model.forward(IDS[:, :PROMPT], state)
    with pytest.raises(ValueError, match="max_tokens=66"):
        model.forward(IDS[:, PROMPT : PROMPT + 7], state)
    assert state.position == PROMPT
    model.forward(IDS[:, PROMPT : PROMPT + 6], state)
    with pytest.raises(ValueError, match="66 are used"):
        model.step(IDS[:, PROMPT], state)


def test_without_attention_a_sequence_has_no_end() -> None:
    made = stack(MAMBA)
    state = made.allocate_state(1, 1)
    wanted = made.forward(IDS[:1, :9])
    found = [made.step(IDS[:1, at], state) for at in range(9)]
    np.testing.assert_allclose(np.stack(found, 1), wanted, rtol=0, atol=STATE_TOLERANCE)


def test_states_that_do_not_fit_are_refused(model: SambaStack) -> None:
    state = model.allocate_state(ROWS, 20)
    with pytest.raises(ValueError, match="2 rows"):
        model.forward(IDS[:1, :5], state)
    with pytest.raises(ValueError, match="another model"):
        model.forward(IDS[:, :5], stack(MAMBA).allocate_state(ROWS, 20))
    with pytest.raises(ValueError, match="lengths"):
        model.forward(IDS[:, :5], state, lengths=[5, 5])
    with pytest.raises(TypeError, match="allocate_state"):
        model.step(IDS[:, 0], [None, None])  # type: ignore[arg-type]
    for shape in (IDS[:, :2], IDS[None, :, :1]):
        with pytest.raises(ValueError, match=r"\(B,\)"):
            model.step(shape, state)
    assert state.position == 0


@pytest.mark.parametrize(("rows", "tokens"), [(0, 4), (1, 0), (1.5, 4), (1, None)])
def test_allocate_state_wants_numbers(model: SambaStack, rows: int, tokens: int) -> None:
    with pytest.raises(ValueError):
        model.allocate_state(rows, tokens)


def test_two_states_do_not_mix(model: SambaStack) -> None:
    states: list[SambaState] = [model.allocate_state(ROWS, LENGTH) for _ in range(2)]
    alone = model.allocate_state(ROWS, LENGTH)
    wanted = [model.step(IDS[:, at], alone) for at in range(4)]
    for at in range(4):
        found = model.step(IDS[:, at], states[0])
        model.step(IDS[:, LENGTH - 1 - at], states[1])
        assert found.tobytes() == wanted[at].tobytes()


def test_a_kernel_that_was_unloaded_comes_back() -> None:
    made = stack(MAMBA)
    made._entries.loaded = LoadedShapes(1)
    wanted = made.forward(IDS[:1, :9])
    state = made.allocate_state(1, 1)
    for at in range(9):
        read = made.step(IDS[:1, at], state)
        assert made.forward(IDS[:1, :9]).tobytes() == wanted.tobytes()
        np.testing.assert_allclose(read, wanted[:, at], rtol=0, atol=STATE_TOLERANCE)
    assert len(made._entries.loaded) == 1


def test_fast_is_compiled_as_fast() -> None:
    exact, fast = stack(MAMBA), stack(MAMBA, numeric_mode="fast")
    # fast may use bf16 products; 8 bits of 32 terms around 1 are a few hundredths.
    np.testing.assert_allclose(fast.forward(IDS[:1, :9]), exact.forward(IDS[:1, :9]), rtol=0, atol=5e-2)
    kernel = fast._entries.loaded.get(Shape(MAMBA, "fast", "forward", 1, 9))
    assert kernel.manifest.numeric_mode == "fast"


def test_a_stack_that_goes_leaves_nothing_behind() -> None:
    made = stack(MAMBA)
    state = made.allocate_state(1, 1)
    made.forward(IDS[:1, :9])
    made.step(IDS[:1, 0], state)
    left = [weakref.ref(made), weakref.ref(made.stepper.state.params), weakref.ref(state.arguments()["decode_in"])]
    gc.disable()
    try:
        del made, state
        assert [reference() for reference in left] == [None] * 3
    finally:
        gc.enable()
