"""The comparison of training steps: what it reports, and that there is no figure without agreement."""

import json
import sys

import pytest

from benchmarks import rounds, samba_cpu, training
from tests.bench.fake_process import FakeProcess


@pytest.fixture
def run_benchmark(monkeypatch, tmp_path):
    def run(*arguments, offset=0.0):
        monkeypatch.setattr(rounds, "Process", FakeProcess)
        monkeypatch.setattr(FakeProcess, "offset", offset)
        monkeypatch.setattr(samba_cpu, "compile_artifact", lambda *_: {"step_s": 1.0, "artifact_s": 2.5})
        monkeypatch.setattr(sys, "argv", ["samba_cpu", *arguments, "--out", str(tmp_path / "figures")])
        return samba_cpu.main(), tmp_path / "figures"

    return run


def test_it_reports_when_the_losses_agree(run_benchmark, capsys):
    status, out = run_benchmark("--model", "T", "--model", "S", offset=training.LOSS_TOLERANCE / 2)

    assert status == 0
    models = json.loads((out / "samba_cpu.json").read_text())["models"]
    assert list(models["T"]["contenders"]) == [
        "trainc",
        *(name + memory for name in ("torch.compile", "torch eager", "JAX") for memory in ("", ", kept memory")),
    ]
    assert set(models["S"]["contenders"]) - set(models["T"]["contenders"]) == {"mojolearn"}
    for ratio in models["T"]["ratios"].values():
        assert ratio == pytest.approx({"median": 0.5, "min": 0.5})
    markdown = (out / "samba_cpu.md").read_text()
    assert capsys.readouterr().out == markdown
    assert "| T | 0.500 (0.500) | 0.500 (0.500) | 0.500 (0.500) |  |" in markdown
    assert "| S | 0.500 (0.500) | 0.500 (0.500) | 0.500 (0.500) | 0.500 (0.500) |" in markdown
    assert "| trainc (trainc_step) | 50.0 | 50.0 | 5,120 | 1.0 | 1.6 | 200 | 1.000 |" in markdown
    assert "| JAX (jax_step) | 100.0 | 100.0 | 2,560 | 2.0 | 2.6 | 200 | 0.500 |" in markdown
    assert "| torch eager (torch_step) | 100.0 | 100.0 | 2,560 | - | 2.6 | 200 | 0.500 |" in markdown
    assert (out / "samba_cpu.png").read_bytes().startswith(b"\x89PNG")


def test_the_better_allocator_setting_of_a_peer_counts():
    rows = {
        "trainc": {"median_s": 2.0, "min_s": 1.0},
        "JAX": {"median_s": 4.0, "min_s": 2.0},
        "JAX, kept memory": {"median_s": 2.5, "min_s": 2.5},
    }
    names = samba_cpu.peer_names("JAX", samba_cpu.PEERS["JAX"])
    assert samba_cpu.ratio(rows, names) == {"median": 2.0 / 2.5, "min": 1.0 / 2.0}


def test_each_contender_starts_with_an_empty_cache_of_its_own(tmp_path):
    options = type("Options", (), {"threads": 2, "peer_python": "python"})
    contenders = samba_cpu.peer_contenders(samba_cpu.PEERS, {}, options, tmp_path)
    folders = [contender.environment["TORCHINDUCTOR_CACHE_DIR"] for contender in contenders.values()]
    assert len(set(folders)) == len(contenders) == 7
    assert contenders["torch.compile"].job["compiled"]
    assert "MALLOC_TRIM_THRESHOLD_" in contenders["JAX, kept memory"].environment
    assert "MALLOC_TRIM_THRESHOLD_" not in contenders["JAX"].environment


def test_it_gives_no_figure_when_the_losses_differ(run_benchmark, capsys):
    status, out = run_benchmark("--peer", "torch eager", "--model", "T", offset=training.LOSS_TOLERANCE * 2)

    assert status == 6
    assert not out.exists()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "no figures: the answers of torch eager must be within" in captured.err


@pytest.mark.parametrize("last", [float("nan"), 6.0])
def test_losses_that_do_not_fall_are_refused(last):
    with pytest.raises(training.DisagreementError):
        training.require_same_training({"trainc": [5.6, last], "JAX": [5.6, last]}, "trainc")
