"""Writing files so that a reader sees the old content or the new, never a part of either."""

import errno
import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

_TEMPORARY = re.compile(r"^\..+\.(?P<pid>\d+)-[0-9a-f]{8}\.tmp$")


def canonical_json(value: object) -> str:
    """The one JSON text of a value: keys sorted, no spaces, ASCII only.

    Args:
        value: Anything `json` can write.

    Returns:
        The text; equal values give equal text.

    Raises:
        ValueError: A number is not finite (JSON has no name for it).
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def sha256_file(path: Path | str) -> str:
    """SHA-256 of a file's content as 64 hexadecimal digits, read in pieces."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fsync_folder(folder: Path) -> None:
    """Make the names in a folder durable, where the system can open a folder (Windows cannot)."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def atomic_write(path: Path | str, content: bytes | Callable[[BinaryIO], None]) -> None:
    """Write a whole file or nothing.

    The content goes to a temporary sibling, is flushed to the disk, takes the final name in one rename, and the folder
    is flushed last. A process killed on the way leaves the old file as it was and perhaps a temporary sibling, which
    `remove_leftovers` clears.

    Args:
        path: The final name; its folder must exist.
        content: The bytes, or a function that writes them to the binary stream it is given.

    Raises:
        OSError: The disk is full or the folder cannot be written; the old file is intact and no sibling stays.
    """
    final = Path(path)
    if not final.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(final))
    temporary = final.with_name(f".{final.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as stream:
            if callable(content):
                content(stream)
            else:
                stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, final)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_folder(final.parent)


def remove_leftovers(folder: Path | str) -> list[Path]:
    """Delete the temporary siblings that killed processes left in a folder.

    Siblings of another process that still runs are kept. Call it before this process writes to the folder.

    Returns:
        The paths that were deleted.
    """
    removed = []
    for path in sorted(Path(folder).iterdir()):
        match = _TEMPORARY.match(path.name)
        if match and not _runs_elsewhere(int(match["pid"])):
            path.unlink(missing_ok=True)
            removed.append(path)
    return removed


def _runs_elsewhere(pid: int) -> bool:
    if pid == os.getpid():  # an earlier process that had our number, as is usual in containers
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
