"""The self-test of compiled artifacts: right ones pass, and each kind of wrong one fails where it is wrong."""

import dataclasses
from contextlib import contextmanager

import numpy as np
import pytest

from trainc.compiler.build import lower
from trainc.core.adamw import COEFFICIENT_NAMES
from trainc.core.errors import ArtifactError, CompileError, VerifyError
from trainc.core.selftest import Draw
from trainc.frontends.samba.config import SambaConfig
from trainc.frontends.samba.config_file import BatchConfig, DecodeConfig, SambaRunConfig
from trainc.frontends.samba.tracing import entries
from trainc.frontends.samba.tracing.build import samba_source
from trainc.frontends.tracing import artifact, common, selftest
from trainc.frontends.tracing.artifact import Source, compile_artifact
from trainc.frontends.tracing.selftest import make_selftest, selftest_beside
from trainc.ir.backward import backward
from trainc.ir.primitives import map_, reduce_sum, scatter_add
from trainc.ir.program import Argument, Program, Result, trace
from trainc.ir.tensor import Aval
from trainc.runtime.artifact import Artifact
from trainc.runtime.device import open_device
from trainc.runtime.program import Program as Loaded
from trainc.runtime.verify import verify

RUN = SambaRunConfig(
    model=SambaConfig(vocab=61, d_model=32, layers=("attention",), n_heads=2, intermediate=48, dropout=0.25),
    batch=BatchConfig(rows=2, length=24),
    decode=DecodeConfig(rows=2, prefill=8, max_tokens=64),
)
SCALED = "layers.0.k_proj.weight"


def compared(source: Source, folder) -> dict[str, list]:
    compile_artifact(source, folder / "x.trainc")
    found = verify(Loaded(Artifact.open(folder / "x.trainc"), open_device("cpu")))
    return {entry: [one for one in found if one.entry == entry] for entry in dict.fromkeys(one.entry for one in found)}


@contextmanager
def expecting(right: Source, monkeypatch):
    """What is compiled meanwhile gets the self-test of other programs."""

    def beside(programs, *rest):
        return selftest_beside(right.programs, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(artifact, "selftest_beside", beside)
        yield


@pytest.mark.parametrize("mode", ["deterministic", "fast"])
def test_a_right_artifact_passes(mode, tmp_path):
    found = compared(samba_source(RUN, mode=mode), tmp_path)
    assert {"gradients", "accumulate", "norms", "update", "eval_loss", "forward", "prefill", "decode"} < set(found)
    assert {"selftest_products", "selftest_row_sums", "selftest_random_bits", "selftest_update"} < set(found)
    assert [one for outputs in found.values() for one in outputs if not one.ok] == []
    names = [one.output for one in found["gradients"]]
    assert names == ["loss", *(f"grads.{name}" for name, _ in RUN.model.registry())]
    assert [one.output for one in found["update"]] == ["params.*", "m.*", "v.*"]
    assert max(one.tolerance for outputs in found.values() for one in outputs) < 3e-4


def test_a_model_of_single_tokens_passes(tmp_path):
    """Scores of one token have no gradient: zero in exact arithmetic, rounding noise in float32."""
    run = dataclasses.replace(RUN, batch=BatchConfig(rows=1, length=1))
    found = compared(samba_source(run, ["train"]), tmp_path)
    assert [one for outputs in found.values() for one in outputs if not one.ok] == []


def test_one_gradient_that_is_a_thousandth_too_large_is_found(tmp_path, monkeypatch):
    right = samba_source(RUN, ["train"])
    names = [name for name, _ in RUN.model.registry()]

    def wrong(loss, wrt):
        gradients = backward(loss, wrt)
        at = names.index(SCALED)
        gradients[at] = map_("ab->ab", lambda x: x * 1.001, gradients[at])
        return gradients

    monkeypatch.setattr(entries, "backward", wrong)
    with expecting(right, monkeypatch):
        found = compared(samba_source(RUN, ["train"]), tmp_path)
    (bad,) = [one for one in found["gradients"] if not one.ok]
    assert bad.output == f"grads.{SCALED}"
    assert 5e-4 < bad.error < 2e-3


@pytest.mark.parametrize("name", COEFFICIENT_NAMES)
def test_each_coefficient_of_the_update_counts(name, tmp_path, monkeypatch):
    """The sign of the learning rate (`step`) among them."""
    right = samba_source(RUN, ["common"])
    real = common.adamw

    def wrong(p, m, v, g, coefficients):
        changed = map_(".->", lambda x: -x if name == "step" else x * 1.1, coefficients[name])
        return real(p, m, v, g, {**coefficients, name: changed})

    monkeypatch.setattr(common, "adamw", wrong)
    with expecting(right, monkeypatch):
        found = compared(samba_source(RUN, ["common"]), tmp_path)
    assert [one for one in found["update"] if not one.ok]
    assert all(one.ok for one in found["norms"])


def test_what_is_not_finite_fails(tmp_path, monkeypatch):
    def source(scale):
        program = Program()
        trace(
            program,
            "f",
            lambda x: [Result("y", map_("n->n", lambda e: e * scale * scale, x))],
            [Argument("x", Aval((9,)))],
        )
        return Source({"m": program}, draws={"x": Draw("uniform", 1, 2)})

    with expecting(source(2.0), monkeypatch):
        (one,) = compared(source(1e30), tmp_path)["f"]
    assert not one.ok
    assert np.isnan(one.error)
    assert one.badness == np.inf


def sums(draws: dict[str, Draw], size: int = 100) -> Source:
    program = Program()
    trace(program, "f", lambda x: [Result("y", reduce_sum("n->", x))], [Argument("x", Aval((size,)))])
    return Source({"m": program}, draws=draws)


def values(source: Source):
    return make_selftest(source.programs, source.tables, source.draws, source.precision)


def test_the_tolerance_follows_what_float32_can_do():
    plain = values(sums({"x": Draw("uniform", 1, 2)})).entries["f"]["y"]
    cancelling = values(sums({"x": Draw("uniform", -1, 1)}, 10_000)).entries["f"]["y"]
    assert plain.tolerance == selftest.SMALLEST_TOLERANCE["f32"]
    assert plain.tolerance <= cancelling.tolerance < 1e-3


def test_bf16_loosens_entries_with_products_only():
    source = samba_source(RUN, ["train", "common"], precision="bf16")
    made = values(source).entries
    assert made["gradients"]["loss"].tolerance == 2.0**-5
    assert made["update"]["m.*"].tolerance < 1e-5


def test_bf16_loosens_rows_added_by_index_which_gpus_multiply():
    program = Program()
    arguments = [Argument("rows", Aval((64, 64))), Argument("ids", Aval((64,), "i32"))]
    trace(program, "f", lambda rows, ids: [Result("y", scatter_add(rows, ids, 64))], arguments)
    assert "xbf16>" in lower(program, {}, "fast", "bf16", "cuda")
    draws = {"rows": Draw("uniform", 1, 2), "ids": Draw("constant", 3)}
    made = values(Source({"m": program}, numeric_mode="fast", precision="bf16", draws=draws))
    assert made.entries["f"]["y"].tolerance == 2.0**-5


@pytest.mark.parametrize(
    ("draws", "error", "text"),
    [
        ({"y": Draw("constant", 1)}, ArtifactError, "argument 'x' of entry 'f'"),
        ({"x": Draw("uniform", 3e38, 3.1e38)}, VerifyError, "y of entry 'f' must be finite"),
    ],
)
def test_draws_that_give_no_value_are_refused(draws, error, text):
    with pytest.raises(error, match=text):
        values(sums(draws))


def test_a_buffer_that_is_read_must_be_drawn():
    source = samba_source(RUN, ["common"])
    with pytest.raises(VerifyError, match="reads buffer 'accum'"):
        values(dataclasses.replace(source, draws={k: v for k, v in source.draws.items() if k != "accum"}))


def test_the_process_beside_gives_the_same_values(monkeypatch, tmp_path):
    monkeypatch.setenv("TRAINC_CACHE_DIR", str(tmp_path))
    source = samba_source(RUN, ["common"])
    parts = source.programs, source.tables, source.draws, source.precision
    with selftest_beside(*parts) as result:
        found = result()
    assert found.to_json() == values(source).to_json()
    monkeypatch.setattr(selftest, "_start", None)  # from now on only the cache can answer
    with selftest_beside(*parts) as result:
        assert result().to_json() == found.to_json()


def test_the_process_beside_ends_with_what_it_stands_beside(monkeypatch, tmp_path):
    monkeypatch.setenv("TRAINC_CACHE_DIR", str(tmp_path))
    started = []

    def start(*files):
        started.append(real(*files))
        return started[0]

    real = selftest._start
    monkeypatch.setattr(selftest, "_start", start)
    source = samba_source(RUN)
    with (
        pytest.raises(KeyboardInterrupt),
        selftest_beside(source.programs, source.tables, source.draws, source.precision),
    ):
        raise KeyboardInterrupt
    assert started[0].poll() is not None


def test_an_error_of_the_process_beside_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("TRAINC_CACHE_DIR", str(tmp_path))
    source = sums({"x": Draw("uniform", 3e38, 3.1e38)})
    parts = source.programs, source.tables, source.draws, source.precision
    with pytest.raises(CompileError, match="y of entry 'f' must be finite"), selftest_beside(*parts) as result:
        result()


def test_a_kernel_has_no_selftest():
    with selftest_beside({}, {}, {}, "f32") as result:
        assert result() is None
