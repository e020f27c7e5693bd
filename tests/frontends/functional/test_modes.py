"""Numeric modes: what deterministic promises, what fast is allowed, and what the loaded code says it is."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.frontends.functional import digests
from trainc.frontends.functional import kernels
from trainc.frontends.functional.modes_used import numeric_mode_used, vendor_used

ROOT = Path(__file__).resolve().parents[3]

# Both modes compute in float32. The longest sums have 611 terms; sqrt(611) roundings of 2^-24 of the largest value,
# and a few for the exponential, give 2e-6.
FAST = 5e-6


def in_a_process(threads: int) -> dict[str, str]:
    """Digests of every function: the threads of a device are fixed when it is first opened."""
    command = [sys.executable, "-m", "tests.frontends.functional.digests", str(threads), "deterministic"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (run.returncode, run.stderr) == (0, "")
    return json.loads(run.stdout)


def test_deterministic_repeats_in_every_process_and_with_any_number_of_threads():
    runs = [digests.results(None) for _ in range(10)]
    here = {name: {digests.digest(run[name]) for run in runs} for name in runs[0]}
    draws = {name: {digests.digest(value)} for name, value in digests.draw_results().items()}
    wanted = {**here, **draws}
    for threads in (1, 2, 3):
        found = in_a_process(threads)
        assert {name: {value} for name, value in found.items()} == wanted, f"{threads} threads"


def test_fast_is_other_code_and_agrees():
    """Other bits show that the freedoms of "fast" reached the compiler; they stay within float32's roundings."""
    exact, fast = digests.results("deterministic"), digests.results("fast")
    differing = set()
    for name, value in exact.items():
        for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (value, fast[name])), strict=True):
            np.testing.assert_allclose(b, a, rtol=0, atol=FAST * np.abs(a).max(), err_msg=name)
            if np.asarray(a).tobytes() != np.asarray(b).tobytes():
                differing.add(name)
    assert {"cross_entropy", "rms_norm_backward"} <= differing


@pytest.mark.parametrize(
    ("asked", "mode"), [(None, "deterministic"), ("deterministic", "deterministic"), ("fast", "fast")]
)
def test_the_mode_used(asked, mode):
    assert numeric_mode_used(asked) == mode
    assert vendor_used(asked) == "cpu"


def test_the_mode_is_the_loaded_codes_and_not_the_request(monkeypatch):
    load = kernels.load_kernel

    def load_fast(name: str, parameters: Any, source: Any) -> Any:
        return load(name, {**parameters, "numeric_mode": "fast"}, source)

    numeric_mode_used("fast")  # compiled and loaded
    monkeypatch.setattr(kernels, "load_kernel", load_fast)
    assert numeric_mode_used("deterministic") == "fast"


@pytest.mark.parametrize("ask", [numeric_mode_used, vendor_used])
def test_other_modes_are_refused(ask):
    with pytest.raises(ValueError, match="numeric_mode must be one of"):
        ask("bogus")
    with pytest.raises(NotImplementedError, match="identical"):
        ask("identical")
