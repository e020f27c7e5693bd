"""Trainers that several threads use at once: calls take turns."""

import threading

import numpy as np

from tests.frontends.test_small_mlp import SHAPES, WEIGHTS, X, Y
from tests.threads import THREADS, in_threads
from trainc.frontends.byte_lm.config import LanguageModelConfig
from trainc.frontends.byte_lm.trainer import LanguageModelTrainer
from trainc.frontends.small_mlp import SmallMLPTrainer

ROUNDS = 20


def test_gradients_are_those_of_the_call():
    trainer = SmallMLPTrainer(WEIGHTS)
    batches = [(X[8 * i : 8 * i + 8], Y[8 * i : 8 * i + 8]) for i in range(THREADS)]
    alone = [trainer.loss_and_grads(*pair)["gradients"] for pair in batches]
    stepper = trainer._trainer.stepper
    gradients, entered = stepper.gradients, threading.Barrier(2)

    def overtaken(arguments):
        """Leave other threads the time between the gradients and their copy, if they are let in."""
        found = gradients(arguments)
        try:
            entered.wait(timeout=0.05)
        except threading.BrokenBarrierError:
            entered.reset()
        return found

    stepper.gradients = overtaken

    def work(number: int) -> None:
        for _ in range(3):
            found = trainer.loss_and_grads(*batches[number])["gradients"]
            for name, _ in SHAPES:
                np.testing.assert_array_equal(found[name], alone[number][name])

    in_threads(work)


def test_every_step_is_taken():
    trainer, again = SmallMLPTrainer(WEIGHTS), SmallMLPTrainer(WEIGHTS)
    numbers: list[int] = []
    in_threads(lambda number: numbers.extend(trainer.train_step(X, Y)["step"] for _ in range(ROUNDS)))
    assert sorted(numbers) == list(range(1, THREADS * ROUNDS + 1))
    again.train_steps(X, Y, THREADS * ROUNDS)
    for name, weight in again.parameters().items():
        np.testing.assert_array_equal(trainer.parameters()[name], weight)


def test_steps_and_batches_are_counted_together():
    config = LanguageModelConfig(length=4, d_model=8, n_heads=2, n_kv=1, head_dim=4, intermediate=8, n_layers=1)
    weights = {name: np.full(shape, 0.01, np.float32) for name, shape in config.registry()}
    trainer, ids = LanguageModelTrainer(config, weights), np.ones((2, 5), np.int32)
    step, entered = trainer._trainer.step, threading.Barrier(2)

    def overtaken(call):
        """Leave other threads the time between a step and its count, if they are let in."""
        taken = step(call)
        try:
            entered.wait(timeout=0.05)
        except threading.BrokenBarrierError:
            entered.reset()
        return taken

    trainer._trainer.step = overtaken

    def work(number: int) -> None:
        for _ in range(3):
            report = trainer.train_step(ids)
            assert report["next_batch_index"] == report["step"]

    in_threads(work)
    assert trainer.next_batch_index == trainer.completed_steps == 3 * THREADS
