"""Silently wrong code for a Vulkan device, of two kinds that compile and run without a word, is found by the self-test.

The device is Mesa's lavapipe: subgroups of 8, and loops that end after 65,535 rounds.
"""

import dataclasses

import pytest

from trainc.compiler import build
from trainc.compiler.targets import find_target
from trainc.core.errors import NumericsError
from trainc.frontends.samba.config import SambaConfig
from trainc.frontends.samba.config_file import BatchConfig, SambaRunConfig
from trainc.frontends.samba.tracing.build import samba_source
from trainc.frontends.tracing import artifact
from trainc.frontends.tracing.artifact import compile_artifact
from trainc.passes.bind_buffers import BindBuffers
from trainc.passes.pipelines import TO_LINALG, TO_PRIMITIVES
from trainc.passes.require_lowered import RequireLowered
from trainc.runtime.artifact import Artifact
from trainc.runtime.program import Program
from trainc.runtime.verified import is_verified, require_verified
from trainc.runtime.verify import verify

RUN = SambaRunConfig(
    model=SambaConfig(vocab=61, d_model=32, layers=("attention",), n_heads=2, intermediate=48),
    batch=BatchConfig(rows=2, length=24),
)
LONG = {(f"selftest_{entry}", "length_300001") for entry in ("row_sums", "column_sums", "maxima")}


@pytest.fixture
def program(tmp_path, vulkan, monkeypatch):
    """Compiles the module `selftest` and loads it; `flags` are those of another target, `pipeline` other passes."""
    right = find_target("lavapipe")
    assert vulkan.info.subgroup_size in right.subgroup_sizes, "these tests are about lavapipe's subgroups of 8"

    def make(flags=None, pipeline=build.pipeline_for) -> Program:
        monkeypatch.setattr(build, "pipeline_for", pipeline)
        target = right if flags is None else dataclasses.replace(right, _flags=flags)
        monkeypatch.setattr(artifact, "find_target", lambda name: target)
        out = tmp_path / "x.trainc"
        compile_artifact(samba_source(RUN, ["selftest"]), out, targets=("lavapipe",))
        monkeypatch.setenv("TRAINC_CACHE_DIR", str(tmp_path / "cache"))  # of what is remembered
        return Program(Artifact.open(out), vulkan)

    return make


def one_stage(family, tables, mode, precision, vector_bytes):
    """The passes of a GPU, but for those that make its programs right."""
    return [*TO_PRIMITIVES, *TO_LINALG, BindBuffers(tables), RequireLowered()]


def wrong(program: Program) -> set[tuple[str, str]]:
    return {(one.entry, one.output) for one in verify(program) if not one.ok}


def test_what_is_compiled_for_the_device_is_right(program):
    assert wrong(program()) == set()


def test_sums_of_one_stage_that_are_too_long_are_wrong_and_nothing_else(program):
    assert wrong(program(pipeline=one_stage)) == LONG


def test_another_subgroup_size_is_wrong_in_sums_and_products(program):
    found = wrong(program(find_target("rdna3").flags()))
    assert {("selftest_row_sums", "length_1024"), ("selftest_softmax", "rows"), ("selftest_products", "vector")} < found


def test_such_code_is_refused(program):
    made, lines = program(pipeline=one_stage), []
    with pytest.raises(NumericsError, match=r"llvmpipe.*'selftest_(row|column)_sums', output 'length_300001'"):
        require_verified(made, lines.append)
    assert "was never verified on vulkan" in lines[0]
    assert not is_verified(made)
