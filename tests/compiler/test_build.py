"""Flags of a module, and what an interrupt leaves."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from trainc.compiler import build, iree
from trainc.compiler.build import lower, module_flags
from trainc.compiler.targets import find_target
from trainc.ir.primitives import elementwise, matmul
from trainc.ir.program import WHOLE, Argument, Program, Result, trace
from trainc.ir.tensor import Aval


def program_of(*shape, state):
    program = Program()

    def negate(x):
        return [Result(WHOLE, elementwise(lambda e: -e, x), state)]

    trace(program, "negate", negate, [Argument(WHOLE, Aval(shape), state)])
    return program


def test_a_compiler_that_starts_after_the_interrupt_is_stopped_too(cache_dir, fake_compiler, monkeypatch):
    target, path, started = find_target("cpu"), fake_compiler("exec sleep 60"), []
    lowering = threading.Event()

    def start():
        started.append(path)
        return path

    def slow(program, *numerics):  # one thread is still lowering when an interrupt ends the other
        if program is late:
            lowering.set()
            time.sleep(0.5)
            return "module {}"
        lowering.wait()
        raise KeyboardInterrupt

    monkeypatch.setattr(iree, "iree_compile_path", start)
    monkeypatch.setattr(build, "lower", slow)
    monkeypatch.setattr(build.os, "cpu_count", lambda: 2)
    late, now = program_of(64, state="p"), program_of(64, state="p")
    start_s = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        build.compile_modules({"now": now, "late": late}, {}, [target])
    assert started == [path]
    assert time.monotonic() - start_s < 30


def test_an_interrupt_does_not_wait_for_modules_that_no_thread_has_begun(cache_dir, monkeypatch):
    def interrupted(program, *numerics):
        raise KeyboardInterrupt

    monkeypatch.setattr(build, "lower", interrupted)
    monkeypatch.setattr(build.os, "cpu_count", lambda: 1)
    programs = {f"m{i}": program_of(64, state="p") for i in range(8)}
    caller = ThreadPoolExecutor(max_workers=1)
    with pytest.raises(KeyboardInterrupt):
        caller.submit(build.compile_modules, programs, {}, [find_target("cpu")]).result(timeout=30)


def test_only_modules_over_memory_of_any_length_take_it_from_any_element():
    target = find_target("cpu")
    assert module_flags(program_of(64, state="p"), target, "") == target.flags()
    assert module_flags(program_of(-1, state=None), target, "") == target.flags()
    (extra,) = set(module_flags(program_of(-1, state="p"), target, "")) - set(target.flags())
    assert extra.endswith("alignment=4")


def test_marked_products_are_packed_and_nothing_else_is():
    target, program = find_target("cpu"), Program()
    arguments = [Argument("a", Aval((64, 64))), Argument("b", Aval((64, 64)))]
    trace(program, "product", lambda a, b: [Result("out", matmul("ij,jk->ik", a, b))], arguments)
    assert module_flags(program, target, lower(program, {}, "fast")) == target.flags()
    assert "--iree-opt-data-tiling" in module_flags(program, target, lower(program, {}, "fast", "bf16"))
