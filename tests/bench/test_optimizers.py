"""The optimizer benchmark's own rules: ratios of what was measured, and no figures without agreement."""

import sys

import pytest

from benchmarks import optimizers


class FakeProcess:
    """Stands for a contender's process; `trainc` takes half the time."""

    offset = 0.0

    def __init__(self, module, job, python, environment):
        self.ours = module.endswith("trainc_adamw")
        self.facts = {"version": module.rpartition(".")[2]}

    def run(self, steps):
        value = 1.0 + (0 if self.ours else self.offset)
        return {"losses": [value] * steps, "times_s": [0.005 if self.ours else 0.01] * steps}

    def close(self):
        pass


@pytest.mark.parametrize(("offset", "status"), [(0.5, 0), (2.0, 6), (float("nan"), 6)])
def test_figures_only_when_the_parameters_agree(monkeypatch, capsys, offset, status):
    monkeypatch.setattr(optimizers, "Process", FakeProcess)
    monkeypatch.setattr(FakeProcess, "offset", offset * optimizers.TOLERANCE)
    monkeypatch.setattr(sys, "argv", ["optimizers"])
    assert optimizers.main() == status
    captured = capsys.readouterr()
    assert ("0.50 (medians), 0.50 (minima)" in captured.out) == (status == 0)
    assert ("no figures" in captured.err) == (status == 6)
