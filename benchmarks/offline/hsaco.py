"""HSACO, AMD's code objects: read and disassembled by LLVM's tools, kernel by kernel."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.offline import tools
from benchmarks.offline.finding import Finding
from trainc.compiler.targets import Target

_ARCH = re.compile(r"amdhsa\.target:\s+\S*-(gfx\w+)")
_SYMBOL = re.compile(r"Symbol \{\s*Name: (\S+) \(\d+\).*?Type: (\w+)", re.DOTALL)
_WAVE = re.compile(r"\.wavefront_size:\s*(\d+)")
_THREADS = re.compile(r"\.max_flat_workgroup_size:\s*(\d+)")
_KERNEL_CODE = re.compile(r"^[0-9a-f]+ <(\S+)>:$(.*?)(?=^[0-9a-f]+ <|\Z)", re.MULTILINE | re.DOTALL)
_UNREAD = re.compile(r"^\s+(?:\.long 0x|<unknown>)", re.MULTILINE)
_MATRIX = re.compile(r"\bv_(?:mfma|wmma)_f32_\w*bf16\w*")
_MOST_UNREAD = 0.03
"""Share of the lines that LLVM's tools may be too old for: LLVM 20 and newer fill unused operands differently."""

_TOO_OLD = "not yet supported for subtarget"

_DESCRIPTOR = ".kd"


def check(path: Path, target: Target) -> Finding:
    """Check one code object."""
    reader = [tools.llvm("llvm-readobj"), "--file-headers", "--symbols", "--notes", path]
    status, text, err = tools.run(reader)
    if status or err.strip():
        return Finding(frozenset(), (f"llvm-readobj: {tools.first_line(err or text)}",))
    arch, symbols = _ARCH.search(text), set(_SYMBOL.findall(text))
    functions = {name for name, kind in symbols if kind == "Function"}
    kernels = frozenset(name for name in functions if (name + _DESCRIPTOR, "Object") in symbols)
    problems = []
    if arch is None or arch[1] != target.arch:
        problems.append(f"it should be for {target.arch}, but is for {arch[1] if arch else 'no known GPU'}")
    waves = {int(size) for size in _WAVE.findall(text)}
    if not waves or not waves <= set(target.subgroup_sizes):
        problems.append(f"wavefronts should have a size of {target.subgroup_sizes}, got {sorted(waves)}")
    if any(int(threads) > target.workgroup_threads for threads in _THREADS.findall(text)):
        problems.append(f"a workgroup has more threads than the {target.workgroup_threads} that the target allows")
    code = _disassembled(path, kernels)
    return Finding(kernels, (*problems, *code.problems), code.notes, code.matrix)


def _disassembled(path: Path, kernels: frozenset[str]) -> Finding:
    """What is wrong with the kernels' code, and what of it could not be read."""
    status, text, err = tools.run([tools.llvm("llvm-objdump"), "--disassemble", "--no-show-raw-insn", path])
    if _TOO_OLD in err:
        return Finding(kernels, notes=("llvm-objdump does not know this GPU yet: the code was not read",), matrix=None)
    if status or err.strip():
        return Finding(kernels, (f"llvm-objdump: {tools.first_line(err or text)}",))
    code = dict(_KERNEL_CODE.findall(text))
    open_ended = sorted(name for name in kernels if "s_endpgm" not in code.get(name, ""))
    if open_ended:
        return Finding(kernels, (f"llvm-objdump shows no end of the code of {open_ended[0]}",))
    lines, unread = text.count("\n"), len(_UNREAD.findall(text))
    if unread > _MOST_UNREAD * lines:
        return Finding(kernels, (f"llvm-objdump reads no instruction in {unread} of {lines} lines",))
    notes = (f"{unread} of {lines} lines of code are newer than llvm-objdump",) if unread else ()
    return Finding(kernels, (), notes, len(_MATRIX.findall(text)))
