"""SPIR-V: spirv-val's verdict, and what the words themselves say of kernels, subgroups and threads."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path

from benchmarks.offline import tools
from benchmarks.offline.finding import Finding
from trainc.compiler.targets import Target

ENVIRONMENT = "vulkan1.1"
"""What modules are checked for: Vulkan 1.1, whose SPIR-V is 1.3 at most."""

_MAGIC = 0x07230203
_HEADER_WORDS = 5
_ENTRY_POINT, _EXECUTION_MODE, _CAPABILITY = 15, 16, 17
_LOCAL_SIZE = 17
_SUBGROUP_CAPABILITIES = range(61, 69)  # GroupNonUniform and its kinds


def check(path: Path, target: Target) -> Finding:
    """Check one module."""
    status, out, err = tools.run([tools.spirv_val(), "--target-env", ENVIRONMENT, path])
    if status:
        return Finding(frozenset(), (f"spirv-val: {tools.first_line(err + out)}",))
    kernels, problems = set(), []
    for opcode, words in _instructions(path.read_bytes()):
        if opcode == _ENTRY_POINT:
            kernels.add(_text(words[2:]))
        if opcode == _CAPABILITY and words[0] in _SUBGROUP_CAPABILITIES and not target.subgroup_sizes:
            problems.append(f"it uses subgroup operations (capability {words[0]}), which the target forbids")
        if opcode == _EXECUTION_MODE and words[1] == _LOCAL_SIZE and math.prod(words[2:5]) > target.workgroup_threads:
            problems.append(f"a workgroup has {words[2:5]} threads, the target allows {target.workgroup_threads}")
    return Finding(frozenset(kernels), tuple(problems))


def _instructions(module: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The opcode and the operands of each instruction of a module that is valid."""
    words = struct.unpack(f"<{len(module) // 4}I", module)
    if words[0] != _MAGIC:
        raise ValueError(f"a SPIR-V module starts with {_MAGIC:#x}, got {words[0]:#x}")
    at = _HEADER_WORDS
    while at < len(words):
        length, opcode = words[at] >> 16, words[at] & 0xFFFF
        yield opcode, words[at + 1 : at + length]
        at += length


def _text(words: tuple[int, ...]) -> str:
    """The string that starts at the first of some words and ends with a zero byte."""
    return struct.pack(f"<{len(words)}I", *words).partition(b"\0")[0].decode()
