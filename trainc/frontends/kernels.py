"""Kernels: small artifacts that are compiled when first needed and kept in the cache folder.

A kernel is looked up by its name and parameters, so using one that was compiled before traces nothing and needs no
compiler.
"""

import atexit
import contextlib
import functools
import hashlib
import importlib.metadata
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trainc
from trainc.core.errors import ArtifactError, UnsupportedError
from trainc.core.files import canonical_json
from trainc.runtime.artifact import Artifact
from trainc.runtime.device import DEFAULT_DEVICE, open_device
from trainc.runtime.program import Program

if TYPE_CHECKING:
    from trainc.frontends.tracing.artifact import Source

logger = logging.getLogger(__name__)

_lock = threading.Lock()
_loaded: dict[str, Program] = {}


def load_kernel(name: str, parameters: Mapping[str, Any], source: Callable[[], "Source"]) -> Program:
    """Return a kernel, ready to call on the default device.

    Args:
        name: Name of the kernel, for example "adamw".
        parameters: What its code depends on, as JSON values.
        source: Traces it; called only if it was never compiled on this machine.

    Returns:
        The loaded kernel; the same object for the same name and parameters.

    Raises:
        CompileError: It does not compile.
        UnsupportedError: It was not compiled before and this installation has no compiler.
    """
    key = _key(name, parameters)
    with _lock:
        program = _loaded.get(key)
        if program is None:
            program = _loaded[key] = _open(name, key, source)
        return program


def open_kernel(name: str, parameters: Mapping[str, Any], source: Callable[[], "Source"]) -> Program:
    """Return a kernel that is unloaded when the caller drops it; the arguments and errors are those of `load_kernel`.

    It is for kernels of which there can be any number, one for every shape of a model's batch.
    """
    with _lock:
        return _open(name, _key(name, parameters), source)


def _key(name: str, parameters: Mapping[str, Any]) -> str:
    return canonical_json({"name": name, "parameters": dict(parameters), "sources": source_digest()})


def _open(name: str, key: str, source: Callable[[], "Source"]) -> Program:
    return Program(_artifact(name, key, source), open_device(DEFAULT_DEVICE))


def _artifact(name: str, key: str, source: Callable[[], "Source"]) -> Artifact:
    from trainc.compiler.cache import KERNELS, cache_folder
    from trainc.compiler.targets import hardware

    digest = hashlib.sha256((key + hardware()).encode()).hexdigest()[:32]
    path = cache_folder() / KERNELS / f"{name}-{digest}.trainc"
    if path.exists():
        try:
            artifact = Artifact.open(path)
            with contextlib.suppress(OSError):
                os.utime(path)  # the cache removes what was used least recently
            return artifact
        except ArtifactError as error:
            logger.warning("the kernel %s is damaged and is compiled again: %s", name, error)
    try:
        from trainc.frontends.tracing.artifact import compile_artifact
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"the kernel {name!r} must be compiled and {error.name} is not installed; install iree-base-compiler"
        ) from error
    try:
        compile_artifact(source(), path)
    except ArtifactError as error:
        path = Path(tempfile.mkdtemp(prefix="trainc-kernel-")) / path.name
        atexit.register(shutil.rmtree, path.parent, ignore_errors=True)
        logger.warning("the cache cannot keep the kernel %s, it is compiled for this process only: %s", name, error)
        compile_artifact(source(), path)
    return Artifact.open(path)


@functools.cache
def source_digest() -> str:
    """Return a digest of what decides a kernel's code beside its parameters: our sources and the compiler's version."""
    digest = hashlib.sha256(importlib.metadata.version("iree-base-runtime").encode())
    root = Path(trainc.__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
