"""The comparisons of decoding, of long sequences and of heads: their ratios, and no figure without agreement."""

import json
import sys

import numpy as np
import pytest

from benchmarks import decode, lengths, lm_head, precision, rounds
from benchmarks.contenders.decode_job import PROMPT_TOKENS, Greedy
from benchmarks.contenders.trainc_functional import TraincContender
from benchmarks.models import LENGTHS, TOKENS
from tests.bench.fake_process import FakeProcess

EXPECTED = {
    decode: "1 rows: tokens/s, trainc / the better torch 2.00",
    lengths: "time per token at 4096 / at 256: 1.000 (medians), 1.000 (minima)",
    lm_head: "1.00 of trainc, dense, 0.50 of torch eager, dense, 0.50 of torch eager, dense, kept memory (medians)",
}


@pytest.mark.parametrize("benchmark", EXPECTED, ids=lambda module: module.__name__.rpartition(".")[2])
@pytest.mark.parametrize(("offset", "status"), [(0.0, 0), (1.0, 6), (float("nan"), 6)])
def test_figures_only_when_the_answers_agree(monkeypatch, capsys, tmp_path, benchmark, offset, status):
    name = benchmark.__name__.rpartition(".")[2]
    monkeypatch.setattr(rounds, "Process", FakeProcess)
    monkeypatch.setattr(FakeProcess, "offset", offset)
    if benchmark is not lm_head:
        monkeypatch.setattr(benchmark.build, "compile_samba", lambda *_: None)
    monkeypatch.setattr(sys, "argv", [name, "--out", str(tmp_path)])

    assert benchmark.main() == status
    captured = capsys.readouterr()
    assert (EXPECTED[benchmark] in captured.out) == (status == 0)
    assert ("no figures" in captured.err) == (status == 6)
    assert (tmp_path / f"{name}.json").exists() == (status == 0)


def test_memory_is_what_a_call_needs_beyond_its_results(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(rounds, "Process", FakeProcess)
    monkeypatch.setattr(sys, "argv", ["lm_head", "--out", str(tmp_path)])
    assert lm_head.main() == 0
    contenders = json.loads((tmp_path / "lm_head.json").read_text())["contenders"]
    gradients_bytes = 4 * (2048 * 256 + 50257 * 256)
    assert contenders["trainc, chunked"]["extra_bytes"] == 2 * 10**8 - 10**8 - gradients_bytes


def test_both_lengths_have_as_many_tokens():
    assert {config.batch.rows * config.batch.length for config in LENGTHS.values()} == {TOKENS}
    assert list(LENGTHS) == [256, 4096]


def test_greedy_decoding_feeds_the_likeliest_token():
    fed = []

    def feed(ids):
        fed.append(ids)
        logits = np.zeros((3, 7))
        logits[[0, 1, 2], [len(fed), 2, 6]] = 1
        return logits

    greedy = Greedy({"rows": 3, "config": {"vocab": 7}}, feed)
    answers = [greedy.step(), greedy.step()]
    assert fed[0].shape == (3, PROMPT_TOKENS)
    assert [ids.tolist() for ids in fed[1:]] == [[[1], [2], [6]], [[2], [2], [6]]]
    assert answers[0] != answers[1]


def test_chunked_and_dense_heads_are_the_same():
    jobs = ({"function": name, "shape": [9, 8, 70], "threads": None} for name in ("lm_head", "lm_head_dense"))
    chunked, dense = (TraincContender(job) for job in jobs)
    assert chunked.facts["held_bytes"] is None or chunked.facts["held_bytes"] > 10**7
    assert chunked.step() == pytest.approx(dense.step(), abs=lm_head.TOLERANCE)


@pytest.mark.parametrize(("share", "status"), [(0.5, 0), (2.0, 6), (float("nan"), 6)])
def test_precisions_are_compared_only_if_their_losses_are_close(monkeypatch, capsys, tmp_path, share, status):
    class Trained(FakeProcess):
        def run(self, steps):
            answer = super().run(steps)
            if not self.job["artifact"].endswith("bf16.trainc"):
                return answer
            losses = [loss * (1 + share * precision.TOLERATED_SHARE) for loss in answer["losses"]]
            return {**answer, "losses": losses, "times_s": [time_s / 2 for time_s in answer["times_s"]]}

    compiled = []
    monkeypatch.setattr(rounds, "Process", Trained)
    monkeypatch.setattr(precision.build, "compile_samba", lambda *_, precision: compiled.append(precision))
    monkeypatch.setattr(sys, "argv", ["precision", "--model", "T", "--out", str(tmp_path)])

    assert precision.main() == status
    assert compiled == ["f32", "bf16"]
    captured = capsys.readouterr()
    assert ("- T: bf16 / f32 0.500 (medians), 0.500 (minima)" in captured.out) == (status == 0)
    assert ("no figures" in captured.err) == (status == 6)
