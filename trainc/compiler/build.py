"""From traced programs to compiled modules and the manifest's entries."""

import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from trainc.compiler.cache import CompileCache, key_parts
from trainc.compiler.iree import compiler_identity, run_iree_compile, stop_compilers
from trainc.compiler.targets import Target
from trainc.core.manifest import Argument, Entry, Result
from trainc.core.modes import DEFAULT_MODE, DEFAULT_PRECISION
from trainc.core.state_table import StateTable
from trainc.ir.mlir import functions, scope
from trainc.ir.program import Program, ports
from trainc.passes.bind_buffers import LENGTH, has_length, is_dynamic, states_of
from trainc.passes.narrow_products import PACKED
from trainc.passes.pipelines import cpu_pipeline
from trainc.passes.runner import run_passes

COMPILE_TIMEOUT_S = 600.0

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
) -> str:
    """Return the text that iree-compile takes for a program, its numbered locations included.

    Args:
        program: A traced program; left unchanged.
        tables: Layout of each flat buffer the program names.
        mode: Numeric mode.
        precision: What the operands of large matrix products are rounded to.
    """
    lowered = program.clone()
    run_passes(lowered, cpu_pipeline(tables, mode, precision))
    return lowered.print(debug_info=True)


def compile_module(
    program: Program,
    tables: Mapping[str, StateTable],
    target: Target,
    mode: str = DEFAULT_MODE,
    precision: str = DEFAULT_PRECISION,
) -> bytes:
    """Return the module of a program, from the cache if it was compiled before.

    Raises:
        CompileError: The compiler refused it, crashed or ran out of time; diagnostics name op, layer and source line.
    """
    text = lower(program, tables, mode, precision)
    flags = module_flags(program, target, text)
    parts = key_parts(
        program=text,
        flags=flags,
        compiler=compiler_identity(),
        pipeline=[repr(item) for item in cpu_pipeline({}, mode, precision)],
        host=target.host,
    )

    def compile_now() -> bytes:
        return run_iree_compile(text, flags, timeout_s=COMPILE_TIMEOUT_S, locations=program.table)

    return CompileCache().get_or_make(parts, compile_now)


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
    target: Target,
    progress: Progress | None = None,
    mode: str = DEFAULT_MODE,
    precision: str = DEFAULT_PRECISION,
) -> dict[str, bytes]:
    """Compile several modules, as many at once as there are processors.

    Args:
        programs: Traced programs by module name.
        tables: Layout of each flat buffer they name.
        target: What to compile for.
        progress: Told as each module is done.
        mode: Numeric mode.
        precision: What the operands of large matrix products are rounded to.
    """
    tell = progress or (lambda line: None)

    def one(name: str) -> bytes:
        module = compile_module(programs[name], tables, target, mode, precision)
        tell(f"compiled {name} for {target.name}: {len(module) / 1024:.0f} KiB")
        return module

    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        futures = {name: pool.submit(one, name) for name in programs}
        try:
            return {name: future.result() for name, future in futures.items()}
        except BaseException:  # an interrupt reaches this thread only: the compilers must not outlive it
            pool.shutdown(wait=False, cancel_futures=True)
            stop_compilers()
            while not all(future.done() for future in futures.values()):
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
