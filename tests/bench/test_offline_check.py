"""The offline checks: what the compiler gives passes, and executables broken in every way they guard against do not."""

import dataclasses
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import offline_check
from benchmarks.offline import tools
from benchmarks.offline.check import check_executable, check_module, required_tools
from benchmarks.offline.dump import Dump, compile_and_dump
from trainc.compiler.targets import Target, find_target, target_names
from trainc.core.modes import resolve_numerics
from trainc.frontends.tracing.artifact import Source
from trainc.ir.primitives import elementwise, matmul, reduce_sum
from trainc.ir.program import Argument, Program, Result, trace
from trainc.ir.tensor import Aval

FORMATS = ("vulkan", "cuda", "rocm", "metal")


def source(precision: str = "f32") -> Source:
    """A product, and the sums of rows, which a GPU with subgroups adds with their operations."""
    program = Program()

    def entry(a, b):
        product = matmul("ij,jk->ik", a, b)
        return [Result("negated", elementwise(lambda e: -e, product)), Result("sums", reduce_sum("ij->i", a))]

    trace(program, "entry", entry, [Argument("a", Aval((64, 1024))), Argument("b", Aval((1024, 64)))])
    return Source({"m": program}, numeric_mode=resolve_numerics(None, precision), precision=precision)


def require_tools(target: Target) -> None:
    """Skips a test without the tools of a target; in continuous integration, which installs them, it fails."""
    try:
        required_tools([target.family])
    except tools.MissingToolError as error:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(error))


@pytest.fixture(scope="module")
def dumped(tmp_path_factory):
    """Compiles the program for a target, once."""
    done: dict[str, Dump] = {}

    def get(name: str, precision: str = "f32") -> tuple[Target, Dump]:
        target, key = find_target(name), f"{name}-{precision}"
        require_tools(target)
        if key not in done:
            done[key] = compile_and_dump(source(precision), "m", target, tmp_path_factory.mktemp(key))
        return target, done[key]

    return get


@pytest.fixture
def first(dumped, tmp_path):
    """A target, and a copy of its first executable."""

    def get(name: str) -> tuple[Target, Path]:
        target, dump = dumped(name)
        copy = tmp_path / dump.executables[0].name
        copy.write_bytes(dump.executables[0].read_bytes())
        return target, copy

    return get


@pytest.mark.parametrize("name", [*FORMATS, "rdna3", "h100", "rx7900xtx"])
def test_what_is_compiled_passes(dumped, name):
    target, dump = dumped(name)
    checked = check_module(dump, target)
    assert checked.problems == ()
    assert checked.executables == len(dump.executables) > 0
    assert checked.failed == 0
    assert set(checked.kernels) == dump.kernels
    assert all(kernel.startswith("entry_dispatch_") for kernel in checked.kernels)


@pytest.mark.parametrize("name", ["cuda", "h100", "gfx90a", "rocm", "rx7900xtx", "gfx1201"])
def test_products_in_bf16_are_counted(dumped, name):
    target, dump = dumped(name, "bf16")
    assert dump.narrow
    assert check_module(dump, target).problems == ()
    assert check_module(dump, target).matrix > 0


def test_products_in_bf16_without_their_instructions_are_caught(dumped):
    target, dump = dumped("cuda")
    assert not dump.narrow
    assert check_module(dump, target).matrix == 0
    problems = check_module(dataclasses.replace(dump, narrow=True), target).problems
    assert problems == ("it multiplies matrices of bfloat16 without an instruction for that",)


def test_code_that_llvms_tools_are_too_old_for_is_noted(dumped, monkeypatch):
    target, dump = dumped("rocm", "bf16")
    run = tools.run

    def too_old(command):
        if "--disassemble" in command:
            return 134, "", "'x' is not known\nLLVM ERROR: Disassembly not yet supported for subtarget\n"
        return run(command)

    monkeypatch.setattr(tools, "run", too_old)
    checked = check_module(dump, target)
    assert checked.problems == ()
    assert checked.matrix is None
    assert checked.notes == ("llvm-objdump does not know this GPU yet: the code was not read",)


def test_all_gpus_of_the_table_are_checked():
    names = offline_check.gpu_names()
    assert {"vulkan", "lavapipe", "sm_86", "gfx950", "adreno", "metal"} < set(names)
    assert all(find_target(name).family != "cpu" for name in names)
    assert len(names) == sum(find_target(name).family != "cpu" for name in target_names())


@pytest.mark.parametrize("at", [0.0, 0.2, 0.5, 0.9])
def test_flipped_words_of_spirv_are_caught(first, at):
    target, path = first("vulkan")
    words = np.frombuffer(path.read_bytes(), np.uint32).copy()
    words[int(at * len(words)) :][:4] ^= 0xFFFFFFFF
    path.write_bytes(words.tobytes())
    (problem,) = check_executable(path, target).problems
    assert problem.startswith("spirv-val: ")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("share", [0.5, 0.95])
def test_truncated_executables_are_caught(first, name, share):
    target, path = first(name)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content)) // 4 * 4])
    assert check_executable(path, target).problems


def test_ptx_cut_between_two_kernels_is_caught(dumped, first):
    target, dump = dumped("cuda")
    _, path = first("cuda")
    text = path.read_text()
    assert text.count(".entry") > 1
    path.write_text(text[: text.rindex(".visible .entry")])
    cut = dataclasses.replace(dump, executables=(path,))
    assert check_executable(path, target).problems == ()  # what is left assembles
    problems = check_module(cut, target).problems
    assert any(problem.startswith("no executable has kernel entry_dispatch_") for problem in problems)


def test_an_executable_that_the_module_does_not_hold_is_caught(dumped, first):
    target, dump = dumped("cuda")
    _, path = first("cuda")
    path.write_text(path.read_text() + "// valid, but another file\n")
    checked = check_module(dataclasses.replace(dump, executables=(path,)), target)
    assert checked.problems == (f"{path.name}: the module does not hold these bytes",)
    assert checked.failed == 1


def test_a_module_without_executables_is_a_problem(dumped):
    target, dump = dumped("vulkan")
    checked = check_module(dataclasses.replace(dump, executables=(), kernels=frozenset()), target)
    assert checked.problems == ("it has no executables",)


def test_code_for_another_gpu_is_caught(first):
    _, path = first("cuda")
    assert check_executable(path, find_target("h100")).problems == ("it should be for sm_90, but says sm_80",)
    _, path = first("rocm")
    assert "it should be for gfx90a, but is for gfx942" in check_executable(path, find_target("gfx90a")).problems
    target = dataclasses.replace(find_target("rocm"), subgroup_sizes=(32,))
    assert "wavefronts should have a size of (32,), got [64]" in check_executable(path, target).problems


def test_subgroup_operations_are_caught_where_any_subgroup_size_must_do(dumped):
    target, dump = dumped("rdna3")
    found = [check_executable(path, dataclasses.replace(target, subgroup_sizes=())) for path in dump.executables]
    assert any("uses subgroup operations" in problem for one in found for problem in one.problems)


@pytest.mark.parametrize("name", ["vulkan", "rocm"])
def test_workgroups_beyond_the_target_are_caught(first, name):
    target, path = first(name)
    problems = check_executable(path, dataclasses.replace(target, workgroup_threads=7)).problems
    assert any("threads" in problem for problem in problems)


def test_another_format_is_caught(first):
    _, path = first("cuda")
    problems = check_executable(path, find_target("vulkan")).problems
    assert problems == ("an executable .spv was expected, got .ptx",)


def test_metal_text_that_is_no_cpp_is_caught_with_its_place(first):
    target, path = first("metal")
    lines = path.read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if line.strip().startswith("kernel void"))
    lines[at + 1] = "{ float = ;"
    path.write_text("\n".join(lines))
    assert any(f"line {at + 2}, " in problem for problem in check_executable(path, target).problems)


def test_missing_tools_are_all_named(monkeypatch, capsys):
    monkeypatch.setattr(tools.shutil, "which", lambda name: None)
    monkeypatch.setattr(tools, "_PTXAS_PACKAGES", ())
    monkeypatch.setattr(tools, "_PARSER_PACKAGES", ("no-such-parser",))
    monkeypatch.setattr(sys, "argv", ["offline_check"])
    assert offline_check.main() == 1
    said = capsys.readouterr().err
    for name in ("spirv-val", "ptxas", "llvm-readobj of LLVM 19 or newer", "llvm-objdump", "no-such-parser"):
        assert f"{name} " in said


def test_older_llvm_tools_are_not_taken(monkeypatch):
    monkeypatch.setattr(tools.shutil, "which", lambda name: "/bin/tool" if name == "llvm-readobj" else None)
    monkeypatch.setattr(tools, "run", lambda command: (0, "Debian LLVM version 14.0.6", ""))
    with pytest.raises(tools.MissingToolError, match="of LLVM 19 or newer is missing"):
        tools.llvm("llvm-readobj")


def test_a_cpu_target_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["offline_check", "--target", "cpu"])
    assert offline_check.main() == 2
    assert "target cpu is no GPU" in capsys.readouterr().err


@pytest.mark.parametrize("broken", [False, True])
def test_the_report_and_the_exit_status_tell_of_failures(monkeypatch, tmp_path, broken):
    problems = ["m.spv: spirv-val: error: wrong"] if broken else []
    row = {"target": "vulkan", "arch": "vulkan", "family": "vulkan", "module": "train", "executables": 3}
    row |= {"failed": len(problems), "kernels": {"gradients": 2, "update": 1}}
    row |= {"problems": problems, "notes": [], "bytes": 2048, "compile_s": 1.5, "precision": "bf16", "matrix": 7}
    monkeypatch.setattr(offline_check, "required_tools", lambda families: {"spirv-val": "v1"})
    monkeypatch.setattr(offline_check, "check_all", lambda sources, targets: [row])
    monkeypatch.setattr(sys, "argv", ["offline_check", "--target", "vulkan", "--out", str(tmp_path)])
    assert offline_check.main() == int(broken)
    text = (tmp_path / "offline-checks.md").read_text()
    result = "**1 failed**" if broken else "ok"
    assert f"| vulkan | vulkan | bf16 | train | 3 | 3 | 7 | 2 | 1.5 | {result} |" in text
    assert "| target | gradients | update |" in text
    assert "| vulkan bf16 | 2 | 1 |" in text
    assert ("vulkan bf16, train: m.spv: spirv-val: error: wrong" in text) == broken
    assert json.loads((tmp_path / "offline-checks.json").read_text())["modules"] == [row]
