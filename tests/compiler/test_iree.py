"""Running iree-compile: mapped diagnostics, hangs, crashes, and output that depends on nothing but the input."""

import hashlib
import importlib.util
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from trainc.compiler import cache, iree
from trainc.compiler.iree import (
    compiler_identity,
    compiler_version,
    iree_compile_path,
    run_iree_compile,
    stop_compilers,
)
from trainc.compiler.targets import find_target
from trainc.core.errors import CompileError
from trainc.ir.locations import LocationTable, Site

DOUBLE = """
func.func @double(%a: tensor<300x4xf32>) -> tensor<300x4xf32> {
  %sum = arith.addf %a, %a : tensor<300x4xf32> loc("trainc":1:0)
  %exp = math.exp %sum : tensor<300x4xf32> loc("trainc":2:0)
  return %exp : tensor<300x4xf32>
}
"""
WRONG_SHAPE = """
func.func @wrong(%a: tensor<4xf32>) -> tensor<5xf32> {
  %e = tensor.empty() : tensor<5xf32>
  %0 = linalg.copy ins(%a : tensor<4xf32>) outs(%e : tensor<5xf32>) -> tensor<5xf32> loc("trainc":2:0)
  return %0 : tensor<5xf32>
}
"""


@pytest.fixture
def table():
    table = LocationTable()
    table.add(Site("embedding", "", "model.py", 10))
    table.add(Site("linear", "layers.0.mixer", "model.py", 12))
    return table


def compile_text(text, locations=None, timeout_s=60.0):
    return run_iree_compile(text, find_target("cpu").flags(), timeout_s=timeout_s, locations=locations)


def kept_program(error):
    return Path(re.search(r"kept in (\S+)$", str(error.value))[1])


def test_the_program_lies_beside_the_package_and_not_on_the_path(monkeypatch):
    monkeypatch.setenv("PATH", "")
    path = iree_compile_path()
    assert path.name == "iree-compile"
    assert path.parent.name == "_mlir_libs"


def test_versions():
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", compiler_version())
    assert compiler_identity().startswith(compiler_version())


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CompileError, match="iree-base-compiler"):
        iree_compile_path()


def test_bytes_depend_only_on_program_and_flags(cache_dir, tmp_path, monkeypatch):
    first = compile_text(DOUBLE)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("TMPDIR", str(elsewhere))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    monkeypatch.setenv("HOME", str(elsewhere))
    second = compile_text(DOUBLE)
    single = run_iree_compile(
        DOUBLE, (*find_target("cpu").flags(), "--mlir-disable-threading"), timeout_s=60.0, locations=None
    )
    assert {hashlib.sha256(blob).hexdigest() for blob in (second, single)} == {hashlib.sha256(first).hexdigest()}
    assert str(tmp_path).encode() not in first
    assert b"trainc-compile-" not in first


def test_nothing_is_left_in_the_temporary_folder(cache_dir, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    compile_text(DOUBLE)
    with pytest.raises(CompileError):
        compile_text(WRONG_SHAPE)
    assert not list(tmp_path.glob("trainc-compile-*"))


def test_a_refusal_names_op_layer_and_line(cache_dir, table):
    with pytest.raises(CompileError) as error:
        compile_text(WRONG_SHAPE, table)
    message = str(error.value)
    assert "linear in layers.0.mixer (model.py:12): 'linalg.copy' op" in message
    assert message.count("linalg.copy") == 1
    program = kept_program(error)
    assert program.is_relative_to(cache_dir)
    kept = program.read_text()
    assert kept.startswith(WRONG_SHAPE)
    assert "--iree-opt-level=O3" in kept


@pytest.mark.parametrize("locations", [None, LocationTable()])
def test_a_number_outside_the_table_is_still_given(cache_dir, locations):
    with pytest.raises(CompileError, match=r"op 2: 'linalg\.copy' op"):
        compile_text(WRONG_SHAPE, locations)


def test_a_syntax_error_names_the_line_of_the_program(cache_dir):
    with pytest.raises(CompileError, match=r"line 2 of the program: .*junk"):
        compile_text("module {\n  junk\n}")


def test_an_unknown_flag_is_named(cache_dir):
    with pytest.raises(CompileError, match="--no-such-flag=1"):
        run_iree_compile("module {}", ["--no-such-flag=1"], timeout_s=60.0, locations=None)


def test_a_real_crash_is_an_error_with_the_program_kept(cache_dir):
    left_over = """func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "train.silu"(%a) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}"""
    with pytest.raises(CompileError, match="was ended by SIG") as error:
        compile_text(left_over)
    assert "0x" not in str(error.value)
    assert kept_program(error).read_text().startswith(left_over)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("kill -KILL $$", "was ended by SIGKILL; the system may be out of memory"),
        ("kill -ABRT $$", "was ended by SIGABRT"),
        ("cat >/dev/null; exit 0", "ended without an output"),
        ("exit 3", "exit status 3"),
        ("echo 'trainc:2:0: error: no' >&2; exit 1", "linear in layers.0.mixer .model.py:12.: no"),
        ("echo '<unknown>:0: error: no' >&2; exit 1", "<unknown>: no"),
        ("echo something went wrong >&2; exit 1", "something went wrong"),
    ],
)
def test_every_bad_ending_is_a_compile_error(cache_dir, fake_compiler, table, script, message):
    fake_compiler(script)
    with pytest.raises(CompileError, match=message) as error:
        run_iree_compile("module {}" + " " * (1 << 20), [], timeout_s=60.0, locations=table)
    assert kept_program(error).exists()


def test_long_diagnostics_are_cut(cache_dir, fake_compiler):
    fake_compiler(
        "i=0; while [ $i -lt 9 ]; do echo \"trainc:$i:0: error: $(head -c 3000 /dev/zero | tr '\\0' x)\" >&2; "
        "i=$((i+1)); done; exit 1"
    )
    with pytest.raises(CompileError) as error:
        run_iree_compile("module {}", [], timeout_s=60.0, locations=None)
    assert len(str(error.value)) < 2500


def test_a_hanging_compiler_is_stopped_with_its_children(cache_dir, fake_compiler, tmp_path):
    pids = tmp_path / "pids"
    fake_compiler(f"sleep 600 & echo $! $$ > {pids}; wait")
    started = time.monotonic()
    with pytest.raises(CompileError, match=r"did not finish within 0\.5 s") as error:
        run_iree_compile("module {}", ["--flag"], timeout_s=0.5, locations=None)
    assert time.monotonic() - started < 30
    assert kept_program(error).exists()
    for pid in pids.read_text().split():
        assert has_ended(int(pid)), pid


def has_ended(pid):
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def test_ctrl_c_stops_the_compiler(cache_dir, fake_compiler, tmp_path, monkeypatch):
    pid = tmp_path / "pid"
    fake_compiler(f"echo $$ > {pid}; sleep 600")
    communicate = iree.subprocess.Popen.communicate

    def interrupted(process, *args, **kwargs):
        monkeypatch.setattr(iree.subprocess.Popen, "communicate", communicate)
        while not pid.exists() or not pid.read_text():
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(iree.subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_iree_compile("module {}", [], timeout_s=60.0, locations=None)
    assert has_ended(int(pid.read_text()))


def test_compilers_in_other_threads_can_be_stopped(cache_dir, fake_compiler, tmp_path):
    pids = tmp_path / "pids"
    fake_compiler(f"echo $$ >> {pids}; sleep 600")
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(run_iree_compile, "module {}", [], timeout_s=60.0, locations=None) for _ in range(2)]
        while not pids.exists() or pids.read_text().count("\n") < 2:
            time.sleep(0.01)
        while not all(future.done() for future in futures):
            stop_compilers()  # one that has just been started may not be known yet
            time.sleep(0.01)
        for future in futures:
            with pytest.raises(CompileError, match="was stopped"):
                future.result()
    assert all(has_ended(int(pid)) for pid in pids.read_text().split())
    assert not list(cache_dir.rglob("*.mlir"))
    stop_compilers()


def test_an_unwritable_cache_does_not_hide_the_error(tmp_path, monkeypatch, fake_compiler):
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv(cache.FOLDER_VARIABLE, str(file / "cache"))
    fake_compiler("exit 1")
    with pytest.raises(CompileError, match="could not be kept"):
        run_iree_compile("module {}", [], timeout_s=60.0, locations=None)


def test_the_callers_environment_is_not_passed_on(cache_dir, fake_compiler, monkeypatch):
    monkeypatch.setenv("IREE_SAVE_TEMPS", "/nowhere")
    fake_compiler('for last; do :; done; env > "$last"')
    names = {
        line.partition("=")[0] for line in run_iree_compile("", [], timeout_s=60.0, locations=None).decode().split()
    }
    assert names & set(os.environ) <= {"PATH", "PWD", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "OLDPWD", "_", "SHLVL"}
