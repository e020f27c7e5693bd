"""Running iree-compile: a subprocess with a time limit, and its diagnostics in the user's terms.

A subprocess because some programs hang or crash the compiler, which must not take the caller with them.
"""

import contextlib
import importlib.metadata
import importlib.util
import logging
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainc.compiler.cache import CompileCache
from trainc.core.errors import CompileError

if TYPE_CHECKING:
    from trainc.ir.locations import LocationTable

logger = logging.getLogger(__name__)

PACKAGE = "iree-base-compiler"

_DIAGNOSTIC = re.compile(r"^(?P<file>[^\s:][^:]*):(?P<line>\d+)(:\d+)?: (?P<kind>error|warning): (?P<text>.*)$")
_NOISE = re.compile(r"^\s*(#?\d+ .*0x[0-9a-f]+|Please report issues|Stack dump|PLEASE submit|$)")
_TARGET_ATTRIBUTE = re.compile(r" for backend #hal\.executable\.target<.*$")
_MAX_DIAGNOSTICS = 4
_MAX_TEXT = 400

_running: set[subprocess.Popen[bytes]] = set()
_stopped: set[subprocess.Popen[bytes]] = set()


def iree_compile_path() -> Path:
    """The iree-compile program that belongs to the installed iree.compiler package.

    Raises:
        CompileError: The package is not installed or lacks the program.
    """
    try:
        spec = importlib.util.find_spec("iree.compiler")
    except ModuleNotFoundError:
        spec = None
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "_mlir_libs" / "iree-compile"
        if os.access(path, os.X_OK):
            return path
    raise CompileError(f"compiling needs iree-compile, which is not installed; install the package {PACKAGE}")


def compiler_version() -> str:
    """Version of the installed compiler package, such as "3.13.0".

    Raises:
        CompileError: The package is not installed.
    """
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError as error:
        raise CompileError(f"compiling needs the package {PACKAGE}, which is not installed") from error


def compiler_identity() -> str:
    """What tells one compiler build from another: version and source revision, for cache keys.

    Raises:
        CompileError: The package is not installed.
    """
    version = compiler_version()
    from iree.compiler import version as build

    return f"{version} {build.VERSION} {build.REVISIONS.get('IREE', '')}"


def run_iree_compile(
    mlir_text: str, flags: Sequence[str], *, timeout_s: float, locations: "LocationTable | None"
) -> bytes:
    """Compile a program to a module, or to whatever the flags ask for.

    The output depends on the text, the flags and the compiler (and on the CPU where a flag says "host") only: the
    program has no file name, and the compiler sees neither the caller's environment nor its folder.

    Args:
        mlir_text: The program, with `loc("trainc":N:0)` locations.
        flags: Flags of iree-compile, without input and output.
        timeout_s: Seconds after which the compiler is stopped.
        locations: Maps the numbers in diagnostics to ops, layers and source lines; None leaves the numbers.

    Returns:
        The bytes of the compiler's output file.

    Raises:
        CompileError: The compiler is absent, refused the program, crashed or ran out of time. The message has the
            first diagnostics and the path of the kept program.
    """
    with tempfile.TemporaryDirectory(prefix="trainc-compile-") as folder:
        output = Path(folder) / "out"
        command = [str(iree_compile_path()), *flags, "-", "-o", str(output)]
        try:
            status, stderr = _run(command, mlir_text.encode(), folder, timeout_s)
        except subprocess.TimeoutExpired as error:
            raise CompileError(
                f"iree-compile did not finish within {timeout_s:g} s and was stopped; allow more time or compile "
                f"smaller shapes.\n{_keep(mlir_text, flags)}"
            ) from error
        found = _diagnostics(stderr, locations)
        if status == 0 and output.is_file():
            for line in found:
                logger.debug("iree-compile: %s", line)
            return output.read_bytes()
    lines = "".join(f"\n  {line}" for line in found[:_MAX_DIAGNOSTICS])
    raise CompileError(f"iree-compile {_ending(status)}{':' if lines else '.'}{lines}\n{_keep(mlir_text, flags)}")


def stop_compilers() -> None:
    """Kill every compiler that a thread of this process is waiting for; those calls raise `CompileError`.

    For a caller that compiles in several threads and is interrupted: Ctrl-C reaches its main thread only.
    """
    for process in tuple(_running):
        _stopped.add(process)
        _kill(process)


def _run(command: list[str], text: bytes, folder: str, timeout_s: float) -> tuple[int, str]:
    """Run the compiler in a folder and a process group of its own; nothing of it survives this call.

    Only where this process is ended by SIGKILL does the compiler run on, until it is done: nobody is left to stop it,
    and a death signal could only be asked for between fork and exec, where a process of several threads must not run
    Python.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=_environment(folder),
        start_new_session=True,
    )
    _running.add(process)
    try:
        _, stderr = process.communicate(text, timeout=timeout_s)
    except BaseException:  # also Ctrl-C, which the new session keeps away from the compiler
        _kill(process)
        process.communicate()
        raise
    finally:
        _running.discard(process)
        stopped = process in _stopped
        _stopped.discard(process)
    if stopped:
        raise CompileError("the compilation was stopped before it finished; compile again")
    return process.returncode, stderr.decode(errors="replace")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the compiler with the linker it may have started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _environment(folder: str) -> Mapping[str, str]:
    """A fixed environment, so that the caller's cannot change the output."""
    fixed = {"PATH": os.defpath, "LC_ALL": "C", "TMPDIR": folder, "LLVM_DISABLE_SYMBOLIZATION": "1"}
    if "LD_LIBRARY_PATH" in os.environ:  # some systems find the C++ library only through it
        fixed["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    return fixed


def _ending(status: int) -> str:
    if status >= 0:
        return f"refused the program (exit status {status})" if status else "ended without an output"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    memory = "; the system may be out of memory" if -status == signal.SIGKILL else ""
    return f"was ended by {name}{memory}"


def _diagnostics(stderr: str, locations: "LocationTable | None") -> list[str]:
    """The errors the compiler printed, else its warnings, else its last plain lines; each once, in order."""
    found: dict[str, list[str]] = {"error": [], "warning": []}
    plain = []
    for line in stderr.splitlines():
        match = _DIAGNOSTIC.match(line)
        if match is not None:
            text = _shorten(_TARGET_ATTRIBUTE.sub("", match["text"]))
            found[match["kind"]].append(f"{_place(match['file'], int(match['line']), locations)}: {text}")
        elif not _NOISE.match(line):
            plain.append(_shorten(line))
    return list(dict.fromkeys(found["error"] or found["warning"] or plain[-_MAX_DIAGNOSTICS:]))


def _place(file: str, line: int, locations: "LocationTable | None") -> str:
    if file == "<stdin>":
        return f"line {line} of the program"
    if file != "trainc":
        return file if line == 0 else f"{file}:{line}"
    site = locations.get(line) if locations is not None else None
    return f"op {line}" if site is None else str(site)


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]} ..."


def _keep(mlir_text: str, flags: Sequence[str]) -> str:
    """Keep the program, its flags after it; say where, or why it is not kept."""
    try:
        path = CompileCache().keep_failed_input(f"{mlir_text}\n// iree-compile {' '.join(flags)}\n")
    except OSError as error:
        return f"The program could not be kept ({error})."
    return f"The program and its flags are kept in {path}"
