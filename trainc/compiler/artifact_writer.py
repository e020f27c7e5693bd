"""Writing an artifact folder: whole or not at all, and never over anything that is not an artifact."""

import ctypes
import dataclasses
import glob
import hashlib
import json
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from trainc.core.errors import ArtifactError
from trainc.core.files import atomic_write, fsync_folder
from trainc.core.manifest import FORMAT, Manifest, ModuleFile

MANIFEST_FILE = "manifest.json"
MODULES_FOLDER = "modules"

_NAME = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")
_STALE_LEFTOVER_S = 3600.0
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


def write_artifact(path: Path | str, manifest: Manifest, modules: Mapping[str, Mapping[str, bytes]]) -> Manifest:
    """Write an artifact folder, in place of an earlier artifact if there is one.

    The folder is written beside its final place and moved there when it is complete, so a reader sees the old artifact
    or the new one and a failed write leaves the old one as it was.

    Args:
        path: The artifact's folder; folders above it are made.
        manifest: What the artifact says about itself; the `modules` of its targets are filled in here.
        modules: The compiled bytes by target name and module name.

    Returns:
        The manifest as written, with the path, digest and size of every module.

    Raises:
        ArtifactError: The path holds something other than an artifact, the manifest does not fit the modules, or the
            disk refuses the write.
    """
    final = Path(os.path.realpath(path))
    complete = _with_modules(manifest, modules)
    Manifest.from_json(json.loads(complete.to_text()))
    _check_replaceable(final)
    partial = final.with_name(f".{final.name}.partial-{secrets.token_hex(4)}")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(final)
        _fill(partial, complete, modules)
        _move(partial, final)
        fsync_folder(final.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ArtifactError(f"the artifact {final} cannot be written: {reason}; nothing was changed") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # after a move: what stood there before
    return complete


def _with_modules(manifest: Manifest, modules: Mapping[str, Mapping[str, bytes]]) -> Manifest:
    if set(manifest.targets) != set(modules):
        raise ArtifactError(
            f"the modules of targets {sorted(manifest.targets)} were expected, got those of {sorted(modules)}"
        )
    targets = {}
    for target_name, target in manifest.targets.items():
        files = {name: _module_file(target_name, name, blob) for name, blob in modules[target_name].items()}
        targets[target_name] = dataclasses.replace(target, modules=files)
    return dataclasses.replace(manifest, targets=targets)


def _module_file(target: str, name: str, blob: bytes) -> ModuleFile:
    for part in (target, name):
        if not _NAME.match(part):
            raise ArtifactError(f"a target or module name must be letters, digits, '_', '.' or '-', got {part!r}")
    path = f"{MODULES_FOLDER}/{target}/{name}.vmfb"
    return ModuleFile(path, hashlib.sha256(blob).hexdigest(), len(blob))


def _check_replaceable(final: Path) -> None:
    """Refuse a path that holds anything a user could miss."""
    if not final.exists():
        return
    hint = "choose another output path or remove it first"
    if not final.is_dir():
        raise ArtifactError(f"the output {final} must be a folder or not exist, but it is a file; {hint}")
    names = {entry.name for entry in final.iterdir()}
    if not names:
        return
    if not _is_artifact(final):
        raise ArtifactError(f"the output {final} is a folder that is not a trainc artifact; {hint}")
    foreign = sorted(names - {MANIFEST_FILE, MODULES_FOLDER})
    if foreign:
        raise ArtifactError(f"the artifact {final} also holds {foreign[0]!r}, which would be lost; {hint}")


def _is_artifact(folder: Path) -> bool:
    try:
        value = json.loads((folder / MANIFEST_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(value, dict) and value.get("format") == FORMAT


def _fill(folder: Path, manifest: Manifest, modules: Mapping[str, Mapping[str, bytes]]) -> None:
    folder.mkdir()
    for target_name, target in manifest.targets.items():
        for name, module in target.modules.items():
            file = folder / module.path
            file.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(file, modules[target_name][name])
    atomic_write(folder / MANIFEST_FILE, manifest.to_text().encode())
    for made in (folder / MODULES_FOLDER, folder):
        if made.is_dir():
            fsync_folder(made)


def _move(partial: Path, final: Path) -> None:
    """Give the complete folder its final name; what stood there takes the partial one's name or is gone."""
    if not final.exists() or not any(final.iterdir()):
        os.rename(partial, final)  # over an empty folder too
        return
    if _exchange(partial, final):
        return
    old = final.with_name(f".{final.name}.previous-{secrets.token_hex(4)}")
    os.rename(final, old)
    try:
        os.rename(partial, final)
    except OSError:
        os.rename(old, final)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names in one step where the system can (Linux, most file systems); say whether it did."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    names = (os.fsencode(one), os.fsencode(other))
    return bool(rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], ctypes.c_uint(_RENAME_EXCHANGE)) == 0)


def _remove_leftovers(final: Path) -> None:
    """Remove partial folders of this artifact that killed processes left here some time ago."""
    for path in final.parent.glob(f".{glob.escape(final.name)}.partial-*"):
        try:
            stale = time.time() - path.stat().st_mtime > _STALE_LEFTOVER_S
        except FileNotFoundError:
            continue
        if stale:
            shutil.rmtree(path, ignore_errors=True)
