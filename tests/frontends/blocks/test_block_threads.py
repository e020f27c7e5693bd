"""Blocks and states that several threads use at once: calls take turns."""

import numpy as np

from tests.frontends.blocks.golden_block import ROWS, golden_block
from tests.threads import THREADS, in_threads
from trainc.core.errors import UsageError
from trainc.frontends.blocks.mamba3 import Mamba3Block
from trainc.frontends.blocks.transformer import TransformerBlock
from trainc.frontends.samba.config import SambaConfig

ROUNDS = 50

MAMBA, X, _ = golden_block()
TOKEN = np.ascontiguousarray(X[:, 0])


def test_tokens_of_a_shared_state_are_read_one_by_one():
    state, again = MAMBA.allocate_state(ROWS), MAMBA.allocate_state(ROWS)
    in_threads(lambda number: [MAMBA.step(TOKEN, state) for _ in range(ROUNDS)] and None)
    assert state.tokens == THREADS * ROUNDS
    for _ in range(THREADS * ROUNDS):
        MAMBA.step(TOKEN, again)
    for name in ("theta", "h", "k_last", "v_last"):
        np.testing.assert_array_equal(getattr(state, name), getattr(again, name))


def test_a_state_takes_turns_across_blocks():
    blocks = [Mamba3Block(32, MAMBA.parameters()) for _ in range(THREADS)]
    state, again = MAMBA.allocate_state(ROWS), MAMBA.allocate_state(ROWS)
    in_threads(lambda number: [blocks[number].step(TOKEN, state) for _ in range(ROUNDS)] and None)
    for _ in range(THREADS * ROUNDS):
        MAMBA.step(TOKEN, again)
    np.testing.assert_array_equal(state.h, again.h)


def test_a_full_cache_stays_full():
    shapes = SambaConfig(2, 8, ("attention",), n_heads=2, intermediate=8).block_shapes("attention")
    block = TransformerBlock(8, 2, 8, [np.full(shape, 0.1, np.float32) for _, shape in shapes])
    state, token = block.allocate_state(1, ROUNDS), np.ones((1, 8), np.float32)
    refused: list[int] = []

    def work(number: int) -> None:
        for _ in range(ROUNDS):
            try:
                block.step(token, state)
            except UsageError:
                refused.append(number)

    in_threads(work)
    assert state.tokens == ROUNDS
    assert len(refused) == (THREADS - 1) * ROUNDS
