"""The programs that check executables: where they are, and running them."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

OLDEST_LLVM, NEWEST_LLVM = 19, 30
"""Releases of LLVM's tools that are looked for; older ones know neither gfx942 nor gfx1201."""

_PTXAS_PACKAGES = ("nvidia-cuda-nvcc-cu12", "nvidia-cuda-nvcc")
_PARSER_PACKAGES = ("tree-sitter", "tree-sitter-cpp")
_TIMEOUT_S = 300.0


class MissingToolError(Exception):
    """A tool is not installed; the message names it and what to install."""


def spirv_val() -> str:
    """The validator of SPIR-V."""
    return _found("spirv-val", shutil.which("spirv-val"), "Debian and Ubuntu have it in the package spirv-tools")


def ptxas() -> str:
    """NVIDIA's assembler of PTX: that of an installed Python package, else the one on PATH."""
    for package in _PTXAS_PACKAGES:
        try:
            files = importlib.metadata.files(package) or ()
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name == "ptxas":
                return str(Path(str(file.locate())))
    return _found("ptxas", shutil.which("ptxas"), "pip install 'trainc[offline]' brings it")


def llvm(name: str) -> str:
    """One of LLVM's tools, of the newest release that is installed and new enough.

    Args:
        name: Its name without a release, such as "llvm-readobj".
    """
    numbered = (shutil.which(f"{name}-{release}") for release in range(NEWEST_LLVM, OLDEST_LLVM - 1, -1))
    path = next(filter(None, numbered), None) or shutil.which(name)
    if path is not None and _llvm_release(path) < OLDEST_LLVM:
        path = None
    return _found(f"{name} of LLVM {OLDEST_LLVM} or newer", path, f"Debian 12 has the package llvm-{OLDEST_LLVM}")


def metal_parser() -> str:
    """The parser that reads Metal's language as C++: versions of its packages."""
    try:
        return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in _PARSER_PACKAGES)
    except importlib.metadata.PackageNotFoundError as error:
        raise MissingToolError(f"{error.name} is missing: pip install 'trainc[offline]' brings it") from error


def version_line(tool: str) -> str:
    """What a tool, or the parser, says of its version, in one line."""
    if tool.startswith(_PARSER_PACKAGES):
        return tool
    lines = run([tool, "--version"])[1].splitlines()
    return next((line.strip() for line in lines if re.search(r"\b(?:version |[Vv])\d", line)), "")


def run(command: Sequence[str | Path]) -> tuple[int, str, str]:
    """Run a tool; returns its exit status and what it wrote to standard output and standard error."""
    done = subprocess.run([str(word) for word in command], capture_output=True, timeout=_TIMEOUT_S, check=False)
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def first_line(text: str) -> str:
    """The first line that is not empty, cut to a readable length."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "no message")[:300]


def _llvm_release(path: str) -> int:
    match = re.search(r"LLVM version (\d+)", run([path, "--version"])[1])
    return int(match[1]) if match else 0


def _found(name: str, path: str | None, where: str) -> str:
    if path is None:
        raise MissingToolError(f"{name} is missing: {where}")
    return path
