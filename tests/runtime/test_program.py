"""Calling entries: what is refused before compiled code runs, and what comes back."""

import ast
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.runtime import toy
from trainc.core.errors import ArtifactError, DeviceError, DtypeError, ShapeError, UsageError
from trainc.core.state_table import StateTable
from trainc.runtime import buffers
from trainc.runtime.buffers import FlatBuffer, aligned_zeros, import_host


@pytest.fixture
def call(program):
    rng = np.random.default_rng(3)
    params, grads = program.new_state("params"), program.new_state("params", "grads")
    params.flat[:] = rng.normal(size=params.flat.size)
    ids, targets = rng.integers(0, toy.VOCAB, (2, toy.MICRO_ROWS, toy.LENGTH)).astype(np.int32)
    return {"params": params, "grads": grads, "ids": ids, "targets": targets, "divisor": 16.0}


def test_gradients_match_numpy_and_overwrite_a_poisoned_buffer(program, call):
    call["grads"].flat.fill(np.nan)
    loss = program.call("gradients", call)["loss"]
    expected, grads = toy.reference_loss_and_gradients(call["params"].views(), call["ids"], call["targets"])
    assert loss.shape == ()
    assert loss.dtype == np.float32
    np.testing.assert_allclose(loss, expected, rtol=1e-6)  # one float32 mean over 16 terms
    for name, view in call["grads"].views().items():
        np.testing.assert_allclose(view, grads[name], atol=1e-6)
    assert not np.isnan(call["grads"].flat).any()  # the padding too


def test_results_belong_to_the_caller(program, call):
    first = program.call("norms", {"grads": call["params"]})["block_max"]
    kept = first.copy()
    call["params"].flat[...] *= 2
    second = program.call("norms", {"grads": call["params"]})["block_max"]
    np.testing.assert_array_equal(first, kept)
    np.testing.assert_array_equal(second, 2 * kept)
    first[:] = 0  # writable


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"ids": np.zeros((3, 8), np.int32)}, ShapeError, "'ids' must have shape (2, 8), got (3, 8)"),
        ({"ids": np.zeros((2, 8), np.int64)}, DtypeError, "'ids' must be an array of int32, got int64"),
        ({"ids": [[0] * 8] * 2}, DtypeError, "got list"),
        ({"ids": np.zeros((2, 16), np.int32)[:, ::2]}, ShapeError, "contiguous"),
        ({"ids": np.zeros((8, 2), np.int32).T}, ShapeError, "contiguous"),
        ({"divisor": "1"}, DtypeError, "'divisor' must be a number for f32, got str"),
        ({"divisor": True}, DtypeError, "got bool"),
        ({"grads": np.zeros(1088, np.float32)}, DtypeError, "'grads' must be a FlatBuffer"),
        ({"more": 1}, UsageError, "unknown: ['more']"),
    ],
)
def test_a_wrong_argument_is_named_and_nothing_runs(program, call, change, error, text):
    call["grads"].flat.fill(7)
    with pytest.raises(error, match=f"(?s){_escape(text)}") as caught:
        program.call("gradients", call | change)
    assert "entry 'gradients'" in str(caught.value)
    assert (call["grads"].flat == 7).all()


def test_a_missing_argument_is_named(program, call):
    del call["divisor"]
    with pytest.raises(UsageError, match="missing: \\['divisor'\\]"):
        program.call("gradients", call)


def test_a_buffer_of_another_layout_is_refused(program, call, device):
    other = FlatBuffer(device, StateTable.build("params", [("W", (toy.VOCAB, toy.VOCAB)), ("c", (toy.VOCAB,))]))
    with pytest.raises(ShapeError, match="laid out as state 'params'"):
        program.call("gradients", call | {"params": other})


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_integers_that_do_not_fit_are_refused(program, value):
    arguments = {
        "params": program.new_state("params"),
        "decode_in": program.new_state("decode"),
        "decode_out": program.new_state("decode"),
        "ids": np.zeros((2, 1), np.int32),
        "length": 1,
        "position": value,
    }
    with pytest.raises(UsageError, match="32 bits"):
        program.call("decode", arguments)


def test_unknown_entry_and_state(program):
    with pytest.raises(ArtifactError, match="no entry 'train'; it has: gradients"):
        program.call("train", {})
    with pytest.raises(ArtifactError, match="no state 'x'"):
        program.new_state("x")


def test_cached_arguments_follow_the_buffers(program):
    """Entries without scalars keep their argument list: another buffer must not meet the old one's list."""
    one, two = program.new_state("params"), program.new_state("params")
    one.flat.fill(1)
    two.flat.fill(2)
    for _ in range(3):
        assert program.call("norms", {"grads": one})["block_max"][0] == 1
        assert program.call("norms", {"grads": two})["block_max"][0] == 2
    program.call("accumulate", {"grads": one, "accum": two})
    program.call("accumulate", {"grads": one, "accum": two})
    program.call("accumulate", {"grads": two, "accum": one})
    assert (one.flat == 5).all()
    assert (two.flat == 7).all()


def test_twenty_repeats_are_bit_equal(program, call):
    seen = set()
    for _ in range(20):
        call["grads"].flat.fill(np.nan)
        loss = program.call("gradients", call)["loss"]
        seen.add((loss.tobytes(), call["grads"].flat.tobytes()))
    assert len(seen) == 1


def test_threads_may_call_at_the_same_time(program, call):
    expected = program.call("eval_loss", {k: call[k] for k in ("params", "ids", "targets")})["nll"]
    results = []

    def work():
        for _ in range(20):
            results.append(program.call("eval_loss", {k: call[k] for k in ("params", "ids", "targets")})["nll"])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 80
    assert {r.tobytes() for r in results} == {expected.tobytes()}


@pytest.mark.parametrize("shift_bytes", [4, 16, 32])
def test_memory_that_is_not_aligned_is_never_imported(device, shift_bytes):
    raw = aligned_zeros((4096,), np.uint8)
    with pytest.raises(DeviceError, match="64 bytes"):
        import_host(device, raw[shift_bytes : shift_bytes + 1024].view(np.float32))
    with pytest.raises(DeviceError, match="contiguous"):
        import_host(device, raw.view(np.float32)[::2])


def test_only_import_host_imports_memory():
    package = Path(buffers.__file__).parents[1]
    users = []
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr == "import_host_allocation":
                users.append(path.name)
    assert users == ["buffers.py"]


@pytest.mark.parametrize("shape", [(1,), (3,), (1088,), (7, 5), ()])
def test_buffers_start_on_a_page(shape):
    for _ in range(20):
        assert aligned_zeros(shape, np.float32).ctypes.data % buffers.PAGE_BYTES == 0


def test_views_are_live(program):
    state = program.new_state("params")
    state.views()["b"][...] = 3
    assert (state.flat[toy.PARAMS["b"].offset :][: toy.VOCAB] == 3).all()
    assert program.call("norms", {"grads": state})["block_max"][-1] == 3


def _escape(text):
    import re

    return re.escape(text)
