"""Compiling a module exactly as an artifact's is, and keeping the executables that are in it."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from trainc.compiler.build import COMPILE_TIMEOUT_S, lower, module_flags
from trainc.compiler.iree import run_iree_compile
from trainc.compiler.targets import Target
from trainc.frontends.tracing.artifact import Source

_EXPORT = re.compile(r"hal\.executable\.export public @([\w$.-]+)")


@dataclass(frozen=True)
class Dump:
    """A compiled module, in its parts.

    Attributes:
        blob: The module.
        time_s: Seconds that compiling took.
        executables: Files with the executables that it holds.
        kernels: Names of the kernels that it launches.
        narrow: Whether it multiplies matrices of bfloat16.
    """

    blob: bytes
    time_s: float
    executables: tuple[Path, ...]
    kernels: frozenset[str]
    narrow: bool


def compile_and_dump(source: Source, module: str, target: Target, folder: Path) -> Dump:
    """Compile a module with a target's own flags.

    Args:
        source: What the artifact is compiled from.
        module: The module's name.
        target: What to compile for.
        folder: Where its parts go.

    Raises:
        CompileError: The compiler refused the program, crashed or ran out of time.
    """
    program = source.programs[module]
    text = lower(program, source.tables, source.numeric_mode, source.precision, target.family, target.vector_bytes)
    binaries, sources = folder / "executables", folder / "sources"
    flags = (
        *module_flags(program, target, text),
        f"--iree-hal-dump-executable-binaries-to={binaries}",
        f"--iree-hal-dump-executable-sources-to={sources}",
    )
    start_s = time.monotonic()
    blob = run_iree_compile(text, flags, timeout_s=COMPILE_TIMEOUT_S, locations=program.table)
    time_s = time.monotonic() - start_s
    launched = (name for file in sources.glob("*.mlir") for name in _EXPORT.findall(file.read_text("utf-8")))
    return Dump(blob, time_s, tuple(sorted(binaries.glob("*"))), frozenset(launched), "xbf16>" in text)
