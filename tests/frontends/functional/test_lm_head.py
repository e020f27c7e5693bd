"""chunked_lm_head_loss: the formula in float64, bits that no block size changes, memory, refusals."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainc.core.errors import NotFiniteError
from trainc.frontends.functional import lm_head
from trainc.frontends.functional.lm_head import chunked_lm_head_loss

ROOT = Path(__file__).resolve().parents[3]
WIDTH = 8

# Logits are sums of 8 products of order one, the loss of a row some ten roundings more of values up to 10.
ABSOLUTE = 3e-6


def case(seed, rows, vocab):
    rng = np.random.default_rng(seed)
    hidden, weight = (rng.standard_normal((n, WIDTH)).astype(np.float32) for n in (rows, vocab))
    return hidden, weight, rng.integers(0, vocab, rows)


def expected(hidden, weight, targets):
    logits = hidden.astype(np.float64) @ weight.T.astype(np.float64)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    rows = np.arange(len(hidden))
    loss = -np.log(p[rows, targets]).mean()
    p[rows, targets] -= 1.0
    p /= len(hidden)
    return loss, p @ weight, p.T @ hidden


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(lm_head, "BLOCK_CLASSES", 64)
    monkeypatch.setattr(lm_head, "BLOCK_ROWS", 16)


@settings(deadline=None, max_examples=40)
@given(rows=st.integers(1, 50), vocab=st.integers(2, 200), seed=st.integers(0, 99))
def test_the_formula(rows, vocab, seed):
    hidden, weight, targets = case(seed, rows, vocab)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lm_head, "BLOCK_CLASSES", 64)
        patch.setattr(lm_head, "BLOCK_ROWS", 16)
        loss, d_hidden, d_weight = chunked_lm_head_loss(hidden, weight, targets, return_grad=True)
        assert chunked_lm_head_loss(hidden, weight, targets) == loss
    wanted = expected(hidden, weight, targets)
    assert loss == pytest.approx(wanted[0], rel=1e-6, abs=ABSOLUTE)
    np.testing.assert_allclose(d_hidden, wanted[1], rtol=0, atol=ABSOLUTE)
    np.testing.assert_allclose(d_weight, wanted[2], rtol=0, atol=ABSOLUTE)


def test_no_block_size_changes_a_bit(monkeypatch):
    hidden, weight, targets = case(1, 75, 333)
    found = set()
    for classes, rows in ((1024, 2048), (64, 2048), (192, 16), (64, 7), (192, 1)):
        monkeypatch.setattr(lm_head, "BLOCK_CLASSES", classes)
        monkeypatch.setattr(lm_head, "BLOCK_ROWS", rows)
        loss, d_hidden, d_weight = chunked_lm_head_loss(hidden, weight, targets, return_grad=True)
        found.add((loss, d_hidden.tobytes(), d_weight.tobytes()))
    assert len(found) == 1


@pytest.mark.usefixtures("small_blocks")
def test_no_call_copies_the_rows_to_a_boundary(monkeypatch):
    """Every row of the inputs and of the carried gradient lies where a kernel uses it in place."""
    hidden, weight, targets = case(3, 48, 200)
    starts = []
    call = lm_head._Head.call

    def recording(head, entry, operands):
        starts.extend(operands[name].ctypes.data % 64 for name in ("hidden", "d_hidden") if name in operands)
        return call(head, entry, operands)

    monkeypatch.setattr(lm_head._Head, "call", recording)
    chunked_lm_head_loss(
        np.frombuffer(b"12345678" + hidden.tobytes(), "f4")[2:].reshape(48, WIDTH), weight, targets, True
    )
    assert starts == [0] * (3 * 4 * 3)  # three blocks of rows and four of classes, scores and gradients


@pytest.mark.usefixtures("small_blocks")
def test_sure_and_large_logits_lose_nothing():
    hidden = np.zeros((2, WIDTH), np.float32)
    hidden[:, 0] = 1e3
    weight = np.zeros((100, WIDTH), np.float32)
    weight[99, 0], weight[3, 0] = 10.0, -10.0
    loss, d_hidden, d_weight = chunked_lm_head_loss(hidden, weight, np.array([99, 99]), True)
    assert loss == 0.0
    np.testing.assert_array_equal(d_hidden, 0.0)
    np.testing.assert_array_equal(d_weight, 0.0)
    assert chunked_lm_head_loss(hidden, weight, np.array([3, 99])) == 1e4


def test_memory():
    """2048 rows and 50257 classes, in a process of its own whose kernels are loaded and whose inputs lie in memory.

    The logits would take 393 MiB. A block of them and its gradient take 8 MiB each, the partial sums of exponentials
    12 MiB before there is a gradient; 28 MiB were measured beside the gradients.
    """
    command = [sys.executable, "-m", "tests.frontends.functional.lm_head_memory"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (run.returncode, run.stderr) == (0, "")
    assert 0 < int(run.stdout) < 64 * 2**20, f"{int(run.stdout) / 2**20:.1f} MiB"


GOOD = case(2, 3, 5)


@pytest.mark.parametrize(
    ("position", "value", "error", "text"),
    [
        (0, np.full((3, WIDTH), np.inf, np.float32), NotFiniteError, r"hidden\[0, 0\] is inf"),
        (
            1,
            np.where(np.arange(5 * WIDTH).reshape(5, WIDTH) == 10, np.nan, 1).astype("f"),
            ValueError,
            r"weight\[1, 2\]",
        ),
        (2, np.array([0, 5, 1]), ValueError, r"targets\[1\]"),
        (2, np.array([0, 1, -100]), ValueError, r"targets\[2\]"),
        (2, np.array([0, 1]), ValueError, r"targets must have shape \(rows,\)"),
        (2, np.array([0.0, 1.0, 2.0]), ValueError, "targets must hold integers"),
        (1, np.ones((1, WIDTH), np.float32), ValueError, "vocab at least 2"),
        (1, np.ones((5, WIDTH + 1), np.float32), ValueError, "weight must have shape"),
        (0, np.ones((3, WIDTH)), TypeError, "hidden must be a float32 array"),
        (0, np.ones(WIDTH, np.float32), ValueError, "hidden must have shape"),
        (0, np.ones((0, WIDTH), np.float32), ValueError, "hidden must have at least one element"),
    ],
)
def test_refusals_name_the_place(position, value, error, text):
    arguments = [value if i == position else good for i, good in enumerate(GOOD)]
    with pytest.raises(error, match=text):
        chunked_lm_head_loss(*arguments)


def test_refusals_of_options():
    with pytest.raises(ValueError, match="return_grad"):
        chunked_lm_head_loss(*GOOD, return_grad=2)
    with pytest.raises(NotImplementedError, match="identical"):
        chunked_lm_head_loss(*GOOD, False, "identical")
