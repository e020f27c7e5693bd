"""This machine's CPU as the compiler sees it, and the named levels."""

import platform
import re
from pathlib import Path

import pytest

from trainc.compiler import iree
from trainc.compiler.targets import cpu, find_target
from trainc.compiler.targets.cpu import cpu_target, host_cpu
from trainc.core.errors import CompileError, UnsupportedError
from trainc.runtime.cpu_features import missing


@pytest.fixture(autouse=True)
def fresh_answer():
    host_cpu.cache_clear()
    yield
    host_cpu.cache_clear()


@pytest.mark.parametrize(
    ("features", "precision", "fits"),
    [
        (("avx512bf16", "avx512f"), "bf16", True),
        (("avx512f",), "bf16", False),
        (("avx512f",), "f32", True),
    ],
)
def test_bf16_needs_its_instructions(features, precision, fits):
    target = cpu_target("cpu", "skylake-avx512", features)
    if fits:
        target.check_precision(precision)
    else:
        with pytest.raises(UnsupportedError, match=r"bf16.*AVX512_BF16.*skylake-avx512.*f32"):
            target.check_precision(precision)


def test_the_cpu_target_is_this_machine(cache_dir):
    target = find_target("cpu")
    assert (target.name, target.driver) == ("cpu", "local-task")
    assert target.arch not in ("", "host", "generic")
    assert "--iree-llvmcpu-target-cpu=host" in target.flags()
    assert target.arch in target.host
    assert list(target.features) == sorted(set(target.features))
    assert all(re.fullmatch(r"[a-z0-9.\-]+", name) for name in target.features)


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="no /proc/cpuinfo")
def test_the_features_are_those_of_thehardware(cache_dir):
    flags = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    if flags is None:
        pytest.skip("not an x86 machine")
    hardware, features = set(flags[1].split()), set(find_target("cpu").features)
    same_name = {"avx", "avx2", "fma", "f16c", "bmi1", "avx512f", "avx512bw", "avx512vl"}
    for name in same_name:
        assert (name in hardware) == (name.replace("bmi1", "bmi") in features), name


def test_the_last_sign_counts():
    assert cpu._enabled("+b,+a,+mwaitx,-mwaitx,-c,+c") == ["a", "b", "c"]


def test_the_compiler_is_asked_once_per_machine(cache_dir, monkeypatch):
    first = host_cpu()
    host_cpu.cache_clear()
    monkeypatch.setattr(cpu, "run_iree_compile", None)
    assert host_cpu() == first


def test_otherhardware_asks_again(cache_dir, monkeypatch):
    calls = []
    run = cpu.run_iree_compile
    monkeypatch.setattr(cpu, "run_iree_compile", lambda *a, **k: calls.append(a) or run(*a, **k))
    host_cpu()
    host_cpu.cache_clear()
    monkeypatch.setattr(cpu, "hardware", lambda: "another machine")
    host_cpu()
    assert len(calls) == 2


def testhardware_text_has_no_clock(monkeypatch, tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(
        "processor\t: 0\ncpu MHz\t: 3211.5\nmodel name\t: X\nflags\t: avx fma\n\nprocessor\t: 1\nflags\t: a\n"
    )
    monkeypatch.setattr(cpu, "_CPUINFO", cpuinfo)
    assert cpu.hardware() == "model name:X\nflags:avx fma"
    monkeypatch.setattr(cpu, "_CPUINFO", tmp_path / "absent")
    assert cpu.hardware()


def test_a_silent_compiler_is_an_error(cache_dir, fake_compiler):
    fake_compiler('for last; do :; done; echo "module {}" > "$last"')
    with pytest.raises(CompileError, match="should name the CPU"):
        host_cpu()


def test_no_compiler_is_an_error(cache_dir, monkeypatch):
    def absent():
        raise CompileError("compiling needs iree-compile")

    monkeypatch.setattr(iree, "iree_compile_path", absent)
    with pytest.raises(CompileError, match="needs iree-compile"):
        find_target("cpu")


@pytest.mark.parametrize("name", [name for name in cpu.NAMES if name != cpu.HOST])
def test_the_features_of_a_level_are_the_compilers(name):
    target = find_target(name)
    flags = (*target.flags(), "--compile-to=preprocessing")
    text = iree.run_iree_compile("module {}", flags, timeout_s=100, locations=None).decode()
    found = set(cpu._enabled(re.search(r'cpu_features = "([^"]*)"', text)[1]))
    if name == "aarch64":  # the compiler lists no feature that every such processor has, but one that is none
        assert found == {"reserve-x18"}
        assert "aarch64" in text
        assert missing(target.features) == [] or platform.machine() != "aarch64"
    else:
        assert found == set(target.features)
        assert "x86_64" in text
    assert target.host == ""
    assert target.vector_bytes == {"x86-64-v4": 64, "x86-64-v3": 32}.get(name, 16)


def test_a_level_is_refused_by_another_kind_of_processor(monkeypatch):
    monkeypatch.setattr("trainc.runtime.cpu_features.machine", lambda: ("an x86", frozenset({"sse4_2", "fpu"})))
    assert missing(find_target("aarch64").features) == ["fp-armv8", "neon"]
    monkeypatch.setattr("trainc.runtime.cpu_features.machine", lambda: ("an arm", frozenset({"fp", "asimd"})))
    assert missing(find_target("aarch64").features) == []
    assert "sse4.2" in missing(find_target("x86-64-v2").features)
