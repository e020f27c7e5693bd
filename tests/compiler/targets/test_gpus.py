"""Code for GPUs: what it may rely on, and artifacts that hold modules for several targets."""

import pytest

from tests.cli.conftest import Cli
from trainc.compiler import build
from trainc.compiler.build import compile_modules
from trainc.compiler.iree import run_iree_compile
from trainc.compiler.targets import find_target, target_names
from trainc.core.errors import CompileError, UnsupportedError
from trainc.core.selftest import Draw
from trainc.frontends.tracing.artifact import Source, compile_artifact
from trainc.frontends.tracing.selftest import SMALLEST_TOLERANCE
from trainc.ir.primitives import elementwise, matmul
from trainc.ir.program import Argument, Program, Result, trace
from trainc.ir.tensor import Aval
from trainc.runtime.artifact import Artifact

BF16_INSTRUCTIONS = {  # that a product in bf16 is compiled to, by target
    "sm_80": "nvvm.mma.sync",
    "sm_90": "nvvm.mma.sync",
    "gfx90a": "rocdl.mfma.f32.16x16x8bf16",
    "gfx942": "rocdl.mfma.f32.16x16x16bf16",
    "gfx950": "rocdl.mfma.f32.16x16x32.bf16",
    "gfx1100": "rocdl.wmma.f32.16x16x16.bf16",
    "gfx1201": "rocdl.wmma.f32.16x16x16.bf16",
}
ANY_SUBGROUP = ("vulkan", "moltenvk", "metal")

ROW_SUMS = """
func.func @sums(%rows: tensor<64x1024xf32>) -> tensor<64xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<64xf32>
  %start = linalg.fill ins(%zero : f32) outs(%empty : tensor<64xf32>) -> tensor<64xf32>
  %sums = linalg.generic {
      indexing_maps = [affine_map<(i, k) -> (i, k)>, affine_map<(i, k) -> (i)>],
      iterator_types = ["parallel", "reduction"]}
      ins(%rows : tensor<64x1024xf32>) outs(%start : tensor<64xf32>) {
    ^bb0(%x: f32, %sum: f32):
      %next = arith.addf %x, %sum : f32
      linalg.yield %next : f32
  } -> tensor<64xf32>
  return %sums : tensor<64xf32>
}
"""


def small(side: int = 16) -> dict[str, Program]:
    program = Program()
    arguments = [Argument("a", Aval((side, side))), Argument("b", Aval((side, side)))]
    trace(
        program,
        "product",
        lambda a, b: [Result("out", elementwise(lambda e: -e, matmul("ij,jk->ik", a, b)))],
        arguments,
    )
    return {"m": program}


@pytest.mark.parametrize("name", [*ANY_SUBGROUP, "rdna3"])
def test_code_for_any_subgroup_size_uses_no_subgroup_operation(name):
    target = find_target(name)
    flags = (*target.flags(), "--compile-to=executable-targets")
    text = run_iree_compile(ROW_SUMS, flags, timeout_s=100, locations=None).decode()
    assert "spirv.func" in text
    assert ("spirv.GroupNonUniform" in text) == (target.subgroup_sizes != ())
    assert (name in ANY_SUBGROUP) == (target.subgroup_sizes == ())


@pytest.mark.parametrize("name", BF16_INSTRUCTIONS)
@pytest.mark.parametrize(("side", "precision"), [(64, "bf16"), (50, "bf16"), (64, "f32")])
def test_products_in_bf16_use_matrix_instructions(name, side, precision):
    target, program = find_target(name), small(side)["m"]
    text = build.lower(program, {}, "fast", precision, target.family)
    assert ("truncf" in text) == (precision == "bf16")
    flags = (*build.module_flags(program, target, text), "--compile-to=executable-targets")
    compiled = run_iree_compile(text, flags, timeout_s=100, locations=program.table).decode()
    assert ("bf16" in compiled) == (precision == "bf16")
    assert (BF16_INSTRUCTIONS[name] in compiled) == (precision == "bf16")


def test_an_artifact_in_bf16_holds_modules_for_gpus_and_a_self_test_for_them(tmp_path, cache_dir):
    draws = {"a": Draw("uniform", 0.5, 1.5), "b": Draw("uniform", 0.5, 1.5)}
    source = Source(small(64), numeric_mode="fast", precision="bf16", draws=draws)
    manifest = compile_artifact(source, tmp_path / "a.trainc", targets=("cuda", "rocm"))
    assert (manifest.precision, list(manifest.targets)) == ("bf16", ["cuda", "rocm"])
    tolerance = manifest.selftest.entries["product"]["out"].tolerance  # which keeps three digits
    assert tolerance == pytest.approx(SMALLEST_TOLERANCE["bf16"], rel=0.01)
    module = Artifact.open(tmp_path / "a.trainc").module_path(manifest.targets["cuda"].modules["m"])
    assert b".f32.bf16.bf16.f32" in module.read_bytes()


def test_no_two_targets_share_a_place_in_the_cache():
    flags = {find_target(name).flags() for name in target_names()}
    assert len(flags) == len(target_names())


def test_one_artifact_holds_modules_for_several_targets(tmp_path, cache_dir, monkeypatch):
    names, lines, reports, lowered = ("cpu", "x86-64-v3", "cuda", "rocm", "vulkan", "metal"), [], [], []
    lower = build.lower
    monkeypatch.setattr(build, "lower", lambda *a: lowered.append(a[4]) or lower(*a))
    source = Source(small())
    written = compile_artifact(
        source, tmp_path / "a.trainc", targets=names, progress=lines.append, report=reports.append
    )
    manifest = Artifact.open(tmp_path / "a.trainc").manifest  # checks every module's digest
    assert manifest == written
    assert tuple(manifest.targets) == names
    assert {target.driver for target in manifest.targets.values()} == {"local-task", "cuda", "hip", "vulkan", "metal"}
    assert manifest.targets["cuda"].arch == "sm_80"
    assert manifest.targets["rocm"].subgroup_sizes == (64,)
    assert manifest.targets["vulkan"].subgroup_sizes == ()
    for name, target in manifest.targets.items():
        assert target.modules["m"].path == f"modules/{name}/m.vmfb"
        assert manifest.compiler["flags"][name] == list(find_target(name).flags())
        assert any(f"compiled m for {name}" in line for line in lines)
    assert len({target.modules["m"].sha256 for target in manifest.targets.values()}) == len(names)
    assert len(lowered) == len({find_target(name).vector_bytes for name in names})  # once for all GPUs
    assert [report.target for report in reports] == list(names)
    assert all(0 < report.compile_s and report.cached == 0 for report in reports)

    again: list[str] = []
    assert compile_artifact(source, tmp_path / "b.trainc", targets=names, progress=again.append) == written
    assert len(again) == len(names)
    assert all("from the cache" in line for line in again)


def test_a_precision_is_refused_before_anything_is_compiled(tmp_path, monkeypatch):
    monkeypatch.setattr("trainc.frontends.tracing.artifact.compile_modules", None)
    source = Source(small(), numeric_mode="fast", precision="bf16")
    with pytest.raises(UnsupportedError, match="'bf16' is not offered for target 'metal'"):
        compile_artifact(source, tmp_path / "a.trainc", targets=("metal",))


def test_a_compiler_that_does_not_end_is_named_with_module_and_target(cache_dir, fake_compiler, monkeypatch):
    fake_compiler("exec sleep 60")
    monkeypatch.setattr(build, "COMPILE_TIMEOUT_S", 0.3)
    with pytest.raises(
        CompileError, match=r"^module 'm' for target 'vulkan': iree-compile did not finish within 0.3 s"
    ):
        compile_modules(small(), {}, [find_target("vulkan")])


def test_inspect_shows_every_target(tmp_path, cache_dir):
    cli = Cli(tmp_path)
    compile_artifact(Source(small()), tmp_path / "a.trainc", targets=("x86-64-v3", "lavapipe"))
    shown = cli.ok("inspect", "a.trainc").stdout
    assert "x86-64-v3" in shown
    assert "lavapipe" in shown
