"""A SambaStack that several threads use at once: calls take turns."""

import threading

import numpy as np

from tests.samba.stacks import MAMBA, batch, stack
from tests.threads import THREADS, in_threads

ROUNDS = 20


def test_gradients_are_those_of_the_call() -> None:
    made, batches = stack(MAMBA), [batch(MAMBA, seed=seed) for seed in range(THREADS)]
    alone = [made.loss_and_grads(*pair) for pair in batches]
    gradients_of, entered = made.stepper.gradients_of, threading.Barrier(2)

    def overtaken(bound):
        """Leave other threads the time between the gradients and their copy, if they are let in."""
        found = gradients_of(bound)
        try:
            entered.wait(timeout=0.05)
        except threading.BrokenBarrierError:
            entered.reset()
        return found

    made.stepper.gradients_of = overtaken  # type: ignore[method-assign]

    def work(number: int) -> None:
        for _ in range(3):
            loss, gradients = made.loss_and_grads(*batches[number])
            assert loss == alone[number][0]
            for got, wanted in zip(gradients, alone[number][1], strict=True):
                np.testing.assert_array_equal(got, wanted)

    in_threads(work)


def test_every_step_is_taken() -> None:
    made, (ids, targets) = stack(MAMBA), batch(MAMBA)
    numbers: list[int] = []

    def work(number: int) -> None:
        for _ in range(ROUNDS):
            numbers.append(made.train_step(ids, targets)["step"])

    in_threads(work)
    assert sorted(numbers) == list(range(1, THREADS * ROUNDS + 1))

    again = stack(MAMBA)
    for _ in range(THREADS * ROUNDS):
        again.train_step(ids, targets)
    assert again.flat.tobytes() == made.flat.tobytes()


def test_tokens_of_a_shared_state_are_read_one_by_one() -> None:
    made = stack(MAMBA)
    state = made.allocate_state(1, 1)
    in_threads(lambda number: [made.step([3], state) for _ in range(ROUNDS)] and None)
    assert state.position == THREADS * ROUNDS

    again = made.allocate_state(1, 1)
    for _ in range(THREADS * ROUNDS):
        made.step([3], again)
    np.testing.assert_array_equal(state.layers[0].h, again.layers[0].h)
