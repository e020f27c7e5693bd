"""Verifying a loaded artifact, and remembering that it passed."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest

from tests.runtime import toy
from trainc.core.adamw import COEFFICIENT_NAMES
from trainc.core.errors import ArtifactError, NumericsError
from trainc.core.selftest import Draw, Expected, SelfTest, fingerprint
from trainc.runtime import verified
from trainc.runtime.artifact import Artifact
from trainc.runtime.discovery import DeviceInfo
from trainc.runtime.program import Program
from trainc.runtime.verified import is_verified, require_passed, require_verified, verify_and_remember
from trainc.runtime.verify import Compared, verify

DRAWS = {
    **{name: Draw("uniform", -1, 1) for name in ("params", "grads", "accum", "m", "decode_in")},
    "v": Draw("uniform", 0.5, 1),
    **{name: Draw("constant", 0.5) for name in COEFFICIENT_NAMES},
    "ids": Draw("integers", 0, toy.VOCAB),
    "targets": Draw("targets", 0, toy.VOCAB),
    "divisor": Draw("constant", 3),
    "length": Draw("constant", 1),
    "position": Draw("constant", 2),
}

GPU = SimpleNamespace(name="vulkan:0", info=DeviceInfo("vulkan:0", "vulkan", "a card", "1.2"))


def selftest(program: Program) -> SelfTest:
    """What `accumulate` must give, and nothing of the other entries."""
    flats = {name: program.manifest.state["params"] for name in ("grads", "accum")}
    flats = {name: np.zeros(table.size) for name, table in flats.items()}
    for name, flat in flats.items():
        for tensor in toy.PARAMS.tensors:
            part = slice(tensor.offset, tensor.offset + tensor.size)
            flat[part] = DRAWS[name].elements(f"{name}:{tensor.name}", (tensor.size,), "f32")
    added = Expected(1e-6, fingerprint(flats["grads"] + flats["accum"]))
    entries = {name: {} for name in program.manifest.entries}
    return SelfTest(DRAWS, {**entries, "accumulate": {"grads.*": added}})


@pytest.fixture
def tested(module, tmp_path, device, monkeypatch):
    """Makes the toy artifact with a self-test; `change` gets the self-test and returns the one to write."""
    monkeypatch.setenv("TRAINC_CACHE_DIR", str(tmp_path / "cache"))

    def make(change=lambda test: test) -> Program:
        folder = toy.write_toy(tmp_path / f"toy{len(list(tmp_path.iterdir()))}.trainc", module)
        manifest = Artifact.open(folder).manifest
        test = change(selftest(Program(Artifact.open(folder), device)))
        (folder / "manifest.json").write_text(dataclasses.replace(manifest, selftest=test).to_text())
        return Program(Artifact.open(folder), device)

    return make


def twice(test: SelfTest) -> SelfTest:
    expected = test.entries["accumulate"]["grads.*"]
    wrong = {"grads.*": Expected(expected.tolerance, 2 * expected.values)}
    return SelfTest(test.draws, {**test.entries, "accumulate": wrong})


def test_every_entry_runs_and_is_compared(tested):
    lines = []
    program = tested()
    (one,) = verify(program, lines.append)
    assert (one.entry, one.output, one.ok) == ("accumulate", "grads.*", True)
    assert len(lines) == len(program.manifest.entries)
    (bad,) = verify(tested(twice))
    assert not bad.ok
    assert bad.error == pytest.approx(0.5, rel=0.01)


def test_what_an_entry_did_not_write_is_found(tested):
    """`decode_out` is not drawn, and a tensor of it that nobody writes stays not-a-number."""
    table = toy.DECODE.tensors[0]
    zeros = Expected(0.5, fingerprint(np.zeros(table.shape)))
    program = tested(lambda t: SelfTest(t.draws, {**t.entries, "accumulate": {}, "decode": {"decode_out.sum": zeros}}))
    program.call = lambda name, arguments: {}
    (one,) = verify(program)
    assert np.isnan(one.error)


def test_a_selftest_that_does_not_fit_is_refused(tested, program):
    with pytest.raises(ArtifactError, match="has no self-test"):
        verify(program)
    with pytest.raises(ArtifactError, match="says nothing of entry 'update'"):
        verify(tested(lambda t: SelfTest(t.draws, {k: v for k, v in t.entries.items() if k != "update"})))
    for name in ("other", "grads.other", "other.*"):
        extra = {name: Expected(0.5, fingerprint(np.ones(3)))}
        with pytest.raises(ArtifactError, match=f"has no output '{name}'".replace("*", r"\*")):
            verify(tested(lambda t, extra=extra: SelfTest(t.draws, {**t.entries, "norms": extra})))


def test_a_pass_is_remembered_for_this_artifact_device_and_driver(tested, monkeypatch, tmp_path):
    program = tested()
    assert not is_verified(program)
    verify_and_remember(program)
    assert is_verified(program)
    (path,) = (tmp_path / "cache/verified").iterdir()
    facts = json.loads(path.read_text())
    assert (facts["device"], facts["driver"].split()[0]) == ("cpu", "local-task")
    assert not is_verified(tested(lambda t: SelfTest({**t.draws, "more": Draw("constant", 1)}, t.entries)))
    with monkeypatch.context() as patch:
        patch.setattr(program.device, "info", dataclasses.replace(program.device.info, version="0.1"))
        assert not is_verified(program)


def test_a_failure_is_not_remembered_and_forgets_a_pass(tested, monkeypatch):
    program = tested()
    verify_and_remember(program)
    wrong = [Compared("accumulate", "grads.*", 0.5, 1e-6)]
    monkeypatch.setattr(verified, "verify", lambda program, tell: wrong)
    assert verify_and_remember(program) == wrong
    assert not is_verified(program)


def test_a_folder_that_cannot_be_written_is_a_warning(tested, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRAINC_CACHE_DIR", str(tmp_path / "file"))
    with pytest.warns(RuntimeWarning, match="cannot be remembered"):
        assert verify_and_remember(tested())


def test_a_device_other_than_the_cpu_is_verified_once(tested, monkeypatch):
    program, lines = tested(), []
    require_verified(program, lines.append)
    assert lines == []  # the CPU is asked by `trainc verify` only
    monkeypatch.setattr(program, "device", GPU)
    right = [Compared("accumulate", "grads.*", 0.0, 1e-6)]
    monkeypatch.setattr(verified, "verify", lambda program, tell: right)
    require_verified(program, lines.append)
    assert "never verified on vulkan:0 (a card)" in lines[0]
    require_verified(program, lines.append)
    assert len(lines) == 1


def test_a_device_with_wrong_numbers_is_refused(tested, monkeypatch):
    program = tested()
    monkeypatch.setattr(program, "device", GPU)
    wrong = [
        Compared("norms", "block_max", 0.0, 1e-6),
        Compared("update", "m.*", 0.5, 1e-6),
        Compared("accumulate", "grads.*", float("nan"), 1e-6),
    ]
    monkeypatch.setattr(verified, "verify", lambda program, tell: wrong)
    for _ in range(2):
        with pytest.raises(NumericsError, match=r"'accumulate', output 'grads.\*'.*wrong entries: update, accumulate"):
            require_verified(program)


def test_no_wrong_output_no_error(program):
    require_passed(program, [Compared("norms", "block_max", 1e-6, 1e-6)])
