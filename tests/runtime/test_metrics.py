"""The metrics file, its picture, and evaluation."""

import json
import sys

import numpy as np
import pytest

from tests.runtime import toy
from trainc.core.errors import DataError, NumericsError, UnsupportedError
from trainc.runtime.data import Corpus
from trainc.runtime.evaluation import evaluate
from trainc.runtime.metrics import MetricsWriter, read_metrics
from trainc.runtime.plot import plot_loss


def fill(path, steps):
    with MetricsWriter(path) as metrics:
        for step in steps:
            metrics.write({"step": step, "train/loss": 3.0 / step})


def test_a_new_run_starts_a_new_file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    fill(path, [1, 2])
    fill(path, [1])
    assert [row["step"] for row in read_metrics(path)] == [1]


@pytest.mark.parametrize("tail", [b"", b'{"step": 6, "train/lo', b"\0\0\0\0", b'{"step": 6}', b"[]\n"])
def test_resuming_drops_later_and_unfinished_lines(tmp_path, tail):
    path = tmp_path / "metrics.jsonl"
    fill(path, [1, 2, 3, 4, 5])
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    with MetricsWriter(path, after_step=5):
        assert path.read_bytes() == whole
    with MetricsWriter(path, after_step=3) as metrics:
        metrics.write({"step": 4, "train/loss": 0.75})
        metrics.sync()
    assert path.read_bytes() == b"".join(whole.splitlines(keepends=True)[:4])


def test_an_unfinished_line_is_not_read(tmp_path):
    path = tmp_path / "metrics.jsonl"
    fill(path, [1, 2])
    path.write_bytes(path.read_bytes() + b'{"step": 3')
    assert len(read_metrics(path)) == 2
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(DataError, match="line 3 is no JSON object"):
        read_metrics(path)
    with pytest.raises(DataError, match="cannot be read"):
        read_metrics(tmp_path / "nothere")


def test_a_value_json_has_no_name_for_is_refused(tmp_path):
    with MetricsWriter(tmp_path / "m") as metrics, pytest.raises(ValueError, match="not JSON compliant"):
        metrics.write({"step": 1, "train/loss": float("nan")})


def test_the_plot(tmp_path):
    pytest.importorskip("matplotlib")
    fill(tmp_path / "m", range(1, 100))
    assert plot_loss(tmp_path / "m", tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    fill(tmp_path / "one", [1])
    plot_loss(tmp_path / "one", tmp_path / "one.png")
    (tmp_path / "none").write_text("")
    with pytest.raises(DataError, match="no train/loss"):
        plot_loss(tmp_path / "none", tmp_path / "x.png")


def test_the_plot_without_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    fill(tmp_path / "m", [1, 2])
    with pytest.raises(UnsupportedError, match=r"trainc\[plot\]"):
        plot_loss(tmp_path / "m", tmp_path / "x.png")
    assert not (tmp_path / "x.png").exists()


@pytest.mark.parametrize("count", [1, 2, 3, 7, 10])
def test_evaluation_is_the_mean_over_all_targets(new_step, tmp_path, count):
    step = new_step(4)
    (tmp_path / "d").write_bytes(toy.text_bytes(10 * toy.LENGTH + 1))
    windows = Corpus([tmp_path / "d"], vocab=toy.VOCAB).windows(toy.LENGTH)
    result = evaluate(step.program, step.driver, step.state.params, windows, max_windows=count)
    ids = windows.read(range(count)).astype(np.int32)
    expected, _ = toy.reference_loss_and_gradients(step.state.params.views(), ids[:, :-1], ids[:, 1:])
    assert result.targets == count * toy.LENGTH
    assert result.loss == pytest.approx(expected, rel=1e-6)  # float32 sums of at most 16 terms
    if count == 10:
        assert evaluate(step.program, step.driver, step.state.params, windows) == result


def test_evaluation_of_damaged_weights(new_step, windows):
    step = new_step(1)
    step.state.params.flat.fill(np.nan)
    with pytest.raises(NumericsError, match="nan"):
        evaluate(step.program, step.driver, step.state.params, windows, 1)
    with pytest.raises(DataError, match="no target"):
        evaluate(step.program, step.driver, step.state.params, windows, 0)


def test_metrics_lines_are_json(tmp_path):
    fill(tmp_path / "m", [1])
    assert json.loads((tmp_path / "m").read_text()) == {"step": 1, "train/loss": 3.0}
