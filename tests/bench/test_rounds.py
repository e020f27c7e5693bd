"""Contenders that take turns: they wait without working, agree before they are measured, and answer over a pipe."""

import sys

import pytest

from benchmarks import rounds
from benchmarks.contenders import protocol
from benchmarks.machine import foreign_line
from tests.bench.fake_process import FakeProcess


def test_a_busy_waiter_is_refused():
    turns = {
        "one": [{"times_s": [1.0], "idle_cpu_s": 0.0}],
        "other": [{"times_s": [1.0], "idle_cpu_s": 0.2}],
    }
    with pytest.raises(RuntimeError, match="other used"):
        rounds.require_idle(turns)


def test_contenders_take_turns_and_each_is_first_once():
    order = []

    class Recorded(FakeProcess):
        def run(self, steps):
            order.append((self.job["name"], steps))
            return super().run(steps)

    processes = {name: Recorded(f"benchmarks.contenders.{name}", {"name": name}, "", {}) for name in ("a", "b")}
    turns, share = rounds.measure(processes, rounds=2, steps=3, warmup=1)
    assert order == [("a", 1), ("b", 1), ("a", 3), ("b", 3), ("b", 3), ("a", 3)]
    assert [len(of_one) for of_one in turns.values()] == [2, 2]
    assert share is None or share >= 0
    figures = rounds.summary(turns["a"], tokens=50)
    assert figures["steps"] == 6
    assert figures["median_s"] == pytest.approx(0.1)
    assert figures["tokens_per_s"] == pytest.approx(500)


@pytest.mark.parametrize("value", [1.2, float("nan")])
def test_answers_that_differ_are_refused(value):
    with pytest.raises(rounds.DisagreementError, match=r"answers of b must be within 0\.1 of those of a"):
        rounds.require_agreement({"a": [1.0], "b": [value]}, "a", 0.1)


@pytest.mark.parametrize(("share", "warned"), [(None, False), (0.01, False), (0.2, True)])
def test_other_programs_work_is_told(share, warned):
    assert ("do not quote" in foreign_line(share)) == warned


def test_a_contender_answers_over_its_pipe_and_its_end_is_noticed():
    job = {"first_loss": 4, "last_loss": 1}
    process = protocol.Process("tests.bench.fake_contender", job, sys.executable, {})
    try:
        assert process.facts["version"] == "fake 1"
        assert process.facts["setup_s"] < 10
        answer = process.run(2)
        assert answer["losses"] == [3, 2]
        assert len(answer["times_s"]) == 2
        assert answer["peak_rss_bytes"] > 10**6
        assert answer["idle_cpu_s"] < 1
        with pytest.raises(RuntimeError, match="ended with status 3"):
            process.run(5)
    finally:
        process.close()
