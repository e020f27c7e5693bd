"""The functions' benchmark: figures only when the answers agree, and both contenders' jobs."""

import sys

import pytest

from benchmarks import functional, pairs
from benchmarks.contenders.trainc_functional import TraincContender


class FakeProcess:
    """Stands for a contender's process; `trainc` takes half the time."""

    offset = 0.0

    def __init__(self, module, job, python, environment):
        self.ours = module.endswith("trainc_functional")
        self.facts = {"version": module.rpartition(".")[2]}

    def run(self, steps):
        value = 1.0 + (0 if self.ours else self.offset)
        times_s = [0.005 if self.ours else 0.01] * steps
        return {"losses": [value] * steps, "times_s": times_s, "cpu_s": 0.01 * steps, "peak_rss_bytes": 10**8}

    def close(self):
        pass


@pytest.mark.parametrize(("offset", "status"), [(0.5, 0), (2.0, 6), (float("nan"), 6)])
def test_figures_only_when_the_answers_agree(monkeypatch, capsys, offset, status):
    monkeypatch.setattr(pairs, "Process", FakeProcess)
    monkeypatch.setattr(FakeProcess, "offset", offset * functional.TOLERANCE)
    monkeypatch.setattr(sys, "argv", ["functional", "--only", "linear"])
    assert pairs.run("functional", "", functional.CASES, functional.TOLERANCE) == status
    captured = capsys.readouterr()
    assert ("linear 2048 x 512 x 512: trainc / torch 0.50 (medians)" in captured.out) == (status == 0)
    assert "cross_entropy" not in captured.out
    assert ("no figures" in captured.err) == (status == 6)


def test_the_contender_computes_a_case():
    job = {"function": "cross_entropy", "shape": [9, 7], "threads": None}
    assert 1.0 < TraincContender(job).step() < 4.0
