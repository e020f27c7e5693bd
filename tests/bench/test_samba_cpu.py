"""The benchmark's own rules: no figures without agreement, and contenders that wait without working."""

import json
import sys

import pytest

from benchmarks import samba_cpu
from benchmarks.contenders import protocol

LOSSES = [5.6, 5.0, 4.6, 4.2, 3.9]


class FakeProcess:
    """Stands for a contender's process; `trainc` takes half the time of the others."""

    offset = 0.0

    def __init__(self, module, job, python, environment):
        self.ours = module.endswith("trainc_step")
        self.facts = {"version": module.rpartition(".")[2]}

    def run(self, steps):
        losses = LOSSES[:steps] + LOSSES[-1:] * (steps - len(LOSSES))
        return {
            "losses": [loss + (0 if self.ours else self.offset) for loss in losses],
            "times_s": [0.05 if self.ours else 0.1] * steps,
            "cpu_s": 0.1 * steps,
            "idle_cpu_s": 0.0,
            "peak_rss_bytes": 10**8,
        }

    def close(self):
        pass


@pytest.fixture
def run_benchmark(monkeypatch, tmp_path):
    def run(offset=0.0):
        monkeypatch.setattr(samba_cpu, "Process", FakeProcess)
        monkeypatch.setattr(FakeProcess, "offset", offset)
        monkeypatch.setattr(samba_cpu, "compile_artifact", lambda *_: {"step_s": 1.0, "artifact_s": 2.0})
        config = str(samba_cpu.ROOT / "examples" / "samba_tiny.toml")
        monkeypatch.setattr(sys, "argv", ["samba_cpu", "--config", config, "--json", str(tmp_path / "figures.json")])
        return samba_cpu.main(), tmp_path / "figures.json"

    return run


def test_it_reports_when_the_losses_agree(run_benchmark, capsys):
    status, figures = run_benchmark(offset=samba_cpu.LOSS_TOLERANCE / 2)

    assert status == 0
    assert json.loads(figures.read_text())["ratio"] == pytest.approx({"median": 0.5, "min": 0.5})
    out = capsys.readouterr().out
    assert "0.500 (medians), 0.500 (minima)" in out
    assert "| trainc (trainc_step) | 50.0 | 50.0 | 100.0 |" in out


def test_it_gives_no_figure_when_the_losses_differ(run_benchmark, capsys):
    status, figures = run_benchmark(offset=samba_cpu.LOSS_TOLERANCE * 2)

    assert status == 6
    assert not figures.exists()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("last", [float("nan"), 6.0])
def test_losses_that_do_not_fall_are_refused(last):
    losses = {name: [5.6, last] for name in (samba_cpu.SUBJECT, *samba_cpu.PEERS)}
    with pytest.raises(samba_cpu.DisagreementError):
        samba_cpu.require_agreement(losses)


def test_a_busy_waiter_is_refused():
    rounds = {
        "one": [{"times_s": [1.0], "idle_cpu_s": 0.0}],
        "other": [{"times_s": [1.0], "idle_cpu_s": 0.2}],
    }
    with pytest.raises(RuntimeError, match="other used"):
        samba_cpu.require_idle(rounds)


def test_a_contender_answers_over_its_pipe_and_its_end_is_noticed():
    job = {"first_loss": 4, "last_loss": 1}
    process = protocol.Process("tests.bench.fake_contender", job, sys.executable, {})
    try:
        assert process.facts == {"version": "fake 1"}
        answer = process.run(2)
        assert answer["losses"] == [3, 2]
        assert len(answer["times_s"]) == 2
        assert answer["peak_rss_bytes"] > 10**6
        assert answer["idle_cpu_s"] < 1
        with pytest.raises(RuntimeError, match="ended with status 3"):
            process.run(5)
    finally:
        process.close()
