"""Checking every executable of a module, and the module as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from benchmarks.offline import hsaco, msl, ptx, spirv, tools
from benchmarks.offline.dump import Dump
from benchmarks.offline.finding import Finding
from trainc.compiler.targets import Target

CHECKS: Mapping[str, ModuleType] = {".spv": spirv, ".ptx": ptx, ".hsaco": hsaco, ".metal": msl}
SUFFIXES = {"vulkan": ".spv", "cuda": ".ptx", "rocm": ".hsaco", "metal": ".metal"}
"""What a family's executables are called."""


@dataclass(frozen=True)
class Checked:
    """What was found in a module.

    Attributes:
        executables: Number of its executables.
        failed: Number of those with a problem.
        kernels: Names of all kernels in them, sorted.
        problems: What is wrong, in words, each with the executable's name.
        notes: What could not be checked.
        matrix: Number of instructions in them that multiply matrices of bfloat16; None if code could not be read.
    """

    executables: int
    failed: int
    kernels: tuple[str, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    matrix: int | None


def required_tools(families: Sequence[str]) -> dict[str, str]:
    """Versions of the tools that families of targets need, by name.

    Raises:
        MissingToolError: One is not installed; the message names all that are not.
    """
    wanted = {
        "vulkan": {"spirv-val": tools.spirv_val},
        "cuda": {"ptxas": tools.ptxas},
        "rocm": {name: (lambda name=name: tools.llvm(name)) for name in ("llvm-readobj", "llvm-objdump")},
        "metal": {"tree-sitter": tools.metal_parser},
    }
    found, missing = {}, []
    for name, find in {name: find for family in families for name, find in wanted[family].items()}.items():
        try:
            found[name] = tools.version_line(find())
        except tools.MissingToolError as error:
            missing.append(str(error))
    if missing:
        raise tools.MissingToolError("; ".join(missing))
    return found


def check_executable(path: Path, target: Target) -> Finding:
    """Check one executable.

    Args:
        path: The file; its suffix tells its format.
        target: What it was compiled for.
    """
    expected = SUFFIXES[target.family]
    if path.suffix != expected:
        return Finding(frozenset(), (f"an executable {expected} was expected, got {path.suffix}",))
    return CHECKS[path.suffix].check(path, target)


def check_module(dump: Dump, target: Target) -> Checked:
    """Check every executable of a module, and that they are what it holds and launches."""
    found = {path: check_executable(path, target) for path in dump.executables}
    problems = {path: list(finding.problems) for path, finding in found.items()}
    for path in dump.executables:
        if path.read_bytes() not in dump.blob:
            problems[path].append("the module does not hold these bytes")
    kernels = {name for finding in found.values() for name in finding.kernels}
    of_module = [f"no executable has kernel {name}" for name in sorted(dump.kernels - kernels)]
    of_module += [f"kernel {name} is launched by nothing" for name in sorted(kernels - dump.kernels)]
    if not dump.executables:
        of_module.append("it has no executables")
    counts = [finding.matrix for finding in found.values()]
    matrix = None if None in counts else sum(filter(None, counts))
    if dump.narrow and matrix == 0:
        of_module.append("it multiplies matrices of bfloat16 without an instruction for that")
    return Checked(
        len(found),
        sum(bool(texts) for texts in problems.values()),
        tuple(sorted(kernels)),
        (*(f"{path.name}: {text}" for path, texts in problems.items() for text in texts), *of_module),
        tuple(note for finding in found.values() for note in finding.notes),
        matrix,
    )
