"""From traced programs to compiled modules and the manifest's entries."""

import functools
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from trainc.compiler.cache import CompileCache, key_parts
from trainc.compiler.iree import compiler_identity, run_iree_compile, stop_compilers
from trainc.compiler.targets import Target
from trainc.core.errors import CompileError
from trainc.core.manifest import Argument, Entry, Result
from trainc.core.modes import DEFAULT_MODE, DEFAULT_PRECISION
from trainc.core.state_table import StateTable
from trainc.ir.mlir import functions, scope
from trainc.ir.program import Program, ports
from trainc.passes.bind_buffers import LENGTH, has_length, is_dynamic, states_of
from trainc.passes.cpu_tiles import WIDEST
from trainc.passes.narrow_products import PACKED
from trainc.passes.pipelines import pipeline_for
from trainc.passes.runner import run_passes

COMPILE_TIMEOUT_S = 300.0
"""Seconds a module may take; what takes longer does not end (some programs for Vulkan)."""

_ANY_ELEMENT = ("--iree-stream-resource-min-offset-alignment=4",)
"""Lets memory start at any float32; by default loads and stores take it for aligned to their vectors, and crash."""

_PACK_MARKED = (
    "--iree-opt-data-tiling",
    # On its own the flag above also marks every product of a function that has no mark; now it looks for others.
    "--iree-dispatch-creation-experimental-set-data-tiling-ops=scaled_matmul",
)
"""Packs the operands of marked products."""

Progress = Callable[[str], None]
"""Called with one line whenever something worth telling happens."""


def lower(
    program: Program,
    tables: Mapping[str, StateTable],
    mode: str = DEFAULT_MODE,
    precision: str = DEFAULT_PRECISION,
    family: str = "cpu",
    vector_bytes: int = WIDEST,
) -> str:
    """Return the text that iree-compile takes for a program, its numbered locations included.

    Args:
        program: A traced program; left unchanged.
        tables: Layout of each flat buffer the program names.
        mode: Numeric mode.
        precision: What the operands of large matrix products are rounded to.
        family: The family of the targets it is for.
        vector_bytes: Width of the vector registers of a CPU that it is for.
    """
    lowered = program.clone()
    run_passes(lowered, pipeline_for(family, tables, mode, precision, vector_bytes))
    return lowered.print(debug_info=True)


@dataclass(frozen=True)
class Module:
    """A compiled module.

    Attributes:
        blob: Its bytes.
        time_s: Seconds that compiling took, lowering not included.
        done_s: Seconds from the beginning of all compilations until it was there.
        cached: Whether it was compiled before.
    """

    blob: bytes
    time_s: float
    done_s: float
    cached: bool


class _Texts:
    """Lowered programs, each lowered once for all targets with the same passes."""

    def __init__(
        self, programs: Mapping[str, Program], tables: Mapping[str, StateTable], mode: str, precision: str
    ) -> None:
        self.programs, self.tables, self.mode, self.precision = programs, tables, mode, precision
        self._texts: dict[tuple[str, ...], str] = {}
        self._locks: defaultdict[tuple[str, ...], threading.Lock] = defaultdict(threading.Lock)

    def passes(self, target: Target) -> tuple[str, ...]:
        """What the passes for a target are called, options included."""
        passes = pipeline_for(target.family, {}, self.mode, self.precision, target.vector_bytes)
        return tuple(repr(item) for item in passes)

    def get(self, name: str, target: Target) -> str:
        """The text of a program for a target."""
        key = (name, *self.passes(target))
        with self._locks[key]:
            if key not in self._texts:
                self._texts[key] = lower(
                    self.programs[name], self.tables, self.mode, self.precision, target.family, target.vector_bytes
                )
        return self._texts[key]


def module_flags(program: Program, target: Target, text: str) -> tuple[str, ...]:
    """Return the flags a module is compiled with: the target's, and what this program needs.

    Memory of dynamic length is the caller's and starts where it happens to start
    (`trainc.runtime.buffers.HostMemory`).

    Args:
        program: The program as traced.
        target: What to compile for.
        text: The program as `lower` gives it.
    """
    with scope():
        anywhere = any(has_length(function) for function in functions(program.module))
    return (*target.flags(), *(_ANY_ELEMENT if anywhere else ()), *(_PACK_MARKED if PACKED in text else ()))


def compile_modules(
    programs: Mapping[str, Program],
    tables: Mapping[str, StateTable],
    targets: Sequence[Target],
    progress: Progress | None = None,
    mode: str = DEFAULT_MODE,
    precision: str = DEFAULT_PRECISION,
) -> dict[str, dict[str, Module]]:
    """Compile every program for every target, as many at once as there are processors.

    Args:
        programs: Traced programs by module name.
        tables: Layout of each flat buffer they name.
        targets: What to compile for.
        progress: Told as each module is done.
        mode: Numeric mode.
        precision: What the operands of large matrix products are rounded to.

    Returns:
        The modules by target name and module name.

    Raises:
        CompileError: The compiler refused a program, crashed or ran out of time; the message names module and target,
            the diagnostics in it op, layer and source line.
    """
    tell = progress or (lambda line: None)
    texts = _Texts(programs, tables, mode, precision)
    start_s = time.monotonic()

    def one(target: Target, name: str) -> Module:
        try:
            module = _compile(texts, name, target, start_s)
        except CompileError as error:
            raise CompileError(f"module {name!r} for target {target.name!r}: {error}") from error
        how = "from the cache" if module.cached else f"{module.time_s:.1f} s"
        tell(f"compiled {name} for {target.name}: {len(module.blob) / 1024:.0f} KiB, {how}")
        return module

    pairs = [(target, name) for name in programs for target in targets]
    modules = _in_parallel([functools.partial(one, target, name) for target, name in pairs])
    found: dict[str, dict[str, Module]] = {target.name: {} for target in targets}
    for (target, name), module in zip(pairs, modules, strict=True):
        found[target.name][name] = module
    return found


def _compile(texts: _Texts, name: str, target: Target, start_s: float) -> Module:
    """Return a module, from the cache if it was compiled before."""
    program, text = texts.programs[name], texts.get(name, target)
    flags = module_flags(program, target, text)
    parts = key_parts(
        program=text,
        flags=flags,
        compiler=compiler_identity(),
        pipeline=texts.passes(target),
        host=target.host,
    )
    compiled_s: list[float] = []

    def compile_now() -> bytes:
        begin_s = time.monotonic()
        blob = run_iree_compile(text, flags, timeout_s=COMPILE_TIMEOUT_S, locations=program.table)
        compiled_s.append(time.monotonic() - begin_s)
        return blob

    blob = CompileCache().get_or_make(parts, compile_now)
    return Module(blob, sum(compiled_s), time.monotonic() - start_s, cached=not compiled_s)


def _in_parallel(tasks: Sequence[Callable[[], Module]]) -> list[Module]:
    """Run tasks, as many at once as there are processors; nothing of them runs on after an error or an interrupt."""
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        futures = [pool.submit(task) for task in tasks]
        try:
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()
            return [future.result() for future in futures]
        except BaseException:  # an interrupt reaches this thread only: the compilers must not outlive it
            pool.shutdown(wait=False, cancel_futures=True)
            stop_compilers()
            while not all(future.done() for future in futures):
                time.sleep(0.05)
                stop_compilers()  # also those that a thread which was still lowering has started since
            raise


def describe_entries(programs: Mapping[str, Program], tables: Mapping[str, StateTable]) -> dict[str, Entry]:
    """Return the manifest's entries of traced programs, in the calling convention that bind-buffers gives them."""
    entries = {}
    with scope():
        for module, program in programs.items():
            for function in functions(program.module):
                name = function.name.value
                entries[name] = _describe(function, name, module, tables)
    return entries


def _describe(function: Any, name: str, module: str, tables: Mapping[str, StateTable]) -> Entry:
    arguments, results = ports(function)
    memory = [_memory_argument(state, function, tables) for state in states_of(function)]
    plain = [
        Argument(p.name, "tensor" if p.aval.shape else "scalar", p.aval.shape, p.aval.dtype)
        for p in arguments
        if p.state is None
    ]
    if has_length(function):
        plain.append(Argument(LENGTH, "scalar", (), "i32"))
    returned = [
        Result(p.name, "tensor", p.aval.shape, p.aval.dtype)
        if p.state is None
        else Result(f"{p.state}.{p.name}", "state", p.aval.shape, p.aval.dtype)
        for p in results
    ]
    return Entry(name, module, (*memory, *plain), tuple(returned))


def _memory_argument(state: str, function: Any, tables: Mapping[str, StateTable]) -> Argument:
    """Return the argument of a flat buffer, or of memory whose length each call chooses."""
    used = next(port for side in ports(function) for port in side if port.state == state)
    if is_dynamic(used):
        return Argument(state, "buffer", used.aval.shape, used.aval.dtype)
    return Argument(state, "state", (tables[state].size,), "f32", tables[state].name)
