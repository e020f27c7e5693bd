"""Kernels: compiled once, found again without tracing, compiled again when damaged; one size is free."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainc.core.errors import DtypeError, ShapeError
from trainc.frontends import kernels
from trainc.runtime.buffers import HostMemory, aligned_zeros
from trainc.runtime.device import open_device

WIDTH = 12


def _source() -> Any:
    from trainc.frontends.tracing.artifact import Source
    from trainc.ir.mlir import DYNAMIC
    from trainc.ir.primitives import map_, reduce_sum
    from trainc.ir.program import WHOLE, Argument, Program, Result, trace
    from trainc.ir.tensor import Aval, Tensor

    def rows(x: Tensor, w: Tensor) -> list[Result]:
        scaled = map_("nd,d->nd", lambda a, b: a * b, x, w)
        return [Result("scaled", scaled), Result("columns", reduce_sum("nd->d", scaled))]

    def subtract(p: Tensor, g: Tensor, rate: Tensor) -> list[Result]:
        return [Result(WHOLE, map_("n,n,.->n", lambda a, b, r: a - b * r, p, g, rate), "p")]

    program = Program()
    trace(program, "rows", rows, [Argument("x", Aval((DYNAMIC, WIDTH))), Argument("w", Aval((WIDTH,)))])
    memory = [Argument(WHOLE, Aval((DYNAMIC,)), state) for state in ("p", "g")]
    trace(program, "subtract", subtract, [*memory, Argument("rate", Aval(()))])
    return Source({"kernel": program})


def _never() -> Any:
    raise AssertionError("a compiled kernel must not be traced again")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture
def cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINC_CACHE_DIR", str(folder))
    monkeypatch.setattr(kernels, "_loaded", {})
    return folder / "kernels"


def _kernel(source: Any = _source) -> Any:
    return kernels.load_kernel("test", {"width": WIDTH}, source)


@pytest.mark.parametrize("rows", [1, 5, 130])
@pytest.mark.parametrize("shift", [0, 1, 4, 15])
def test_any_number_of_rows_at_any_alignment(cache: Path, rows: int, shift: int) -> None:
    rng = np.random.default_rng(rows)
    memory = rng.standard_normal(rows * WIDTH + 16).astype(np.float32)
    x = memory[shift : shift + rows * WIDTH].reshape(rows, WIDTH)
    w = rng.standard_normal(WIDTH).astype(np.float32)
    found = _kernel().call("rows", {"x": x, "w": w})
    np.testing.assert_array_equal(found["scaled"], x * w)
    # Rounding of a float32 sum of `rows` terms in another order.
    np.testing.assert_allclose(found["columns"], (x.astype(np.float64) * w).sum(0), atol=1e-6 * rows, rtol=0)


def test_a_second_process_would_find_it(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _kernel()
    monkeypatch.setattr(kernels, "_loaded", {})
    again = _kernel(_never)
    assert _kernel(_never) is again


def test_a_damaged_kernel_is_compiled_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _kernel()
    (module,) = cache.glob("*/modules/cpu/*.vmfb")
    whole = module.read_bytes()
    module.write_bytes(whole[:-1])
    monkeypatch.setattr(kernels, "_loaded", {})
    _kernel()
    assert module.read_bytes() == whole


@pytest.mark.parametrize("length", [1, 16, 1000])
def test_memory_is_changed_in_place(cache: Path, length: int) -> None:
    p, g = aligned_zeros((length + 8,), np.float32), aligned_zeros((length,), np.float32)
    p[:], g[:] = 3.0, np.arange(length)
    device = open_device()
    buffers = {"p": HostMemory(device, p[:length]), "g": HostMemory(device, g)}
    _kernel().call("subtract", {**buffers, "rate": 0.5, "length": length})
    np.testing.assert_array_equal(p[:length], 3.0 - 0.5 * g)
    np.testing.assert_array_equal(p[length:], 3.0)


def test_wrong_arguments_are_refused_before_anything_runs(cache: Path) -> None:
    kernel, device = _kernel(), open_device()
    w = np.ones(WIDTH, np.float32)
    with pytest.raises(ShapeError, match="argument 'x'"):
        kernel.call("rows", {"x": np.ones((3, WIDTH + 1), np.float32), "w": w})
    with pytest.raises(ShapeError, match="argument 'x'"):
        kernel.call("rows", {"x": np.ones((0, WIDTH), np.float32), "w": w})
    with pytest.raises(DtypeError, match="argument 'x'"):
        kernel.call("rows", {"x": np.ones((3, WIDTH)), "w": w})
    short, long = (HostMemory(device, aligned_zeros((n,), np.float32)) for n in (4, 8))
    with pytest.raises(ShapeError, match="one size"):
        kernel.call("subtract", {"p": short, "g": long, "rate": 1.0, "length": 8})
    with pytest.raises(ShapeError, match="one size"):
        kernel.call("subtract", {"p": short, "g": short, "rate": 1.0, "length": 5})
    with pytest.raises(DtypeError, match="HostMemory"):
        kernel.call("subtract", {"p": np.ones(4, np.float32), "g": short, "rate": 1.0, "length": 4})


def test_sources_decide_the_key() -> None:
    assert len(kernels.source_digest()) == 64
    program = "from trainc.frontends.kernels import source_digest; print(source_digest())"
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == kernels.source_digest()


def test_an_unwritable_cache_costs_a_compilation(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    monkeypatch.setenv("TRAINC_CACHE_DIR", str(blocked))
    monkeypatch.setattr(kernels, "_loaded", {})
    with pytest.warns(UserWarning, match="cannot be used"):
        kernel = _kernel()
    assert "for this process only" in caplog.text
    found = kernel.call("rows", {"x": np.ones((2, WIDTH), np.float32), "w": np.ones(WIDTH, np.float32)})
    np.testing.assert_array_equal(found["columns"], 2.0)
