"""The compile cache: blobs by content key, checked when read, bounded in size, never in the way.

A damaged entry or a folder that cannot be written costs a compilation and a `CacheWarning`, never an error.
"""

import hashlib
import logging
import os
import re
import shutil
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from trainc.core.files import atomic_write

logger = logging.getLogger(__name__)

FOLDER_VARIABLE = "TRAINC_CACHE_DIR"
DEFAULT_LIMIT_BYTES = 2 << 30

KERNELS = "kernels"
"""Folder of the artifacts that were compiled when first needed, NAME-<32 digits>.trainc each."""

_KERNEL_NAME = re.compile(r"^[A-Za-z0-9_.-]+-[0-9a-f]{32}\.trainc$")
_MAGIC = b"trainc-cache-1\n"
_ENTRY_NAME = re.compile(r"^[0-9a-f]{64}$")
_TEMPORARY_NAME = re.compile(r"^\..+\.tmp$")
_STALE_TEMPORARY_S = 3600.0
_warned_folders: set[Path] = set()
_warned_lock = threading.Lock()


class CacheWarning(UserWarning):
    """The compile cache is damaged or unusable; the compilation went on without it."""


@dataclass(frozen=True)
class CacheInfo:
    """What the cache holds.

    Attributes:
        folder: Where it lives.
        entries: Number of compiled entries.
        kernels: Number of kernels and shapes that were compiled when first needed.
        failed_inputs: Number of programs kept because their compilation failed.
        size_bytes: Bytes of all its files.
        limit_bytes: The size above which the least recently used files go.
    """

    folder: Path
    entries: int
    kernels: int
    failed_inputs: int
    size_bytes: int
    limit_bytes: int


def cache_folder() -> Path:
    """The cache folder: TRAINC_CACHE_DIR if set, else the platform's user cache folder."""
    override = os.environ.get(FOLDER_VARIABLE)
    return Path(override).expanduser() if override else platformdirs.user_cache_path("trainc")


def key_parts(
    *, program: str, flags: Sequence[str], compiler: str, pipeline: Sequence[str], host: str = ""
) -> list[tuple[str, str]]:
    """The ordered parts that decide what compiling a program gives.

    Args:
        program: The program's text, locations included.
        flags: Flags of the compiler, in order.
        compiler: Version and revision of the compiler.
        pipeline: Names of our passes, with their options, in order.
        host: The CPU and its features where a flag says "host", else "".

    Returns:
        (name, value) pairs for `content_key`.
    """
    return [
        ("program", program),
        ("flags", "\n".join(flags)),
        ("compiler", compiler),
        ("pipeline", "\n".join(pipeline)),
        ("host", host),
    ]


def content_key(parts: Sequence[tuple[str, str]]) -> str:
    """SHA-256 over ordered (name, value) pairs as 64 hexadecimal digits.

    Lengths are hashed too, so no two lists of pairs run together. At debug log level each part's own digest is
    logged, which tells why two keys differ.
    """
    key = hashlib.sha256()
    for name, value in parts:
        for text in (name, value):
            data = text.encode()
            key.update(len(data).to_bytes(8, "little"))
            key.update(data)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("cache key part %s: %s", name, hashlib.sha256(value.encode()).hexdigest()[:16])
    logger.debug("cache key: %s", key.hexdigest())
    return key.hexdigest()


class CompileCache:
    """Blobs on disk by content key; safe with several processes writing at once.

    Args:
        folder: Where to keep them; `cache_folder()` if None.
        limit_bytes: Size of all files above which the least recently used ones are removed.
    """

    def __init__(self, folder: Path | None = None, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        self.folder = cache_folder() if folder is None else folder
        self.limit_bytes = limit_bytes
        self._entries = self.folder / "entries"
        self._failed = self.folder / "failed"
        self._kernels = self.folder / KERNELS

    def get_or_make(self, parts: Sequence[tuple[str, str]], make: Callable[[], bytes]) -> bytes:
        """Return the blob of a key, from the cache or else made now and stored.

        Args:
            parts: What decides the blob, as for `content_key`.
            make: Makes it; its exceptions pass through and nothing is stored.
        """
        key = content_key(parts)
        blob = self.get(key)
        if blob is None:
            blob = make()
            self.put(key, blob)
        return blob

    def get(self, key: str) -> bytes | None:
        """Return the blob of a key, or None if it is absent or damaged (with a `CacheWarning`)."""
        path = self._entries / key
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn_unusable(error)
            return None
        digest, blob = data[len(_MAGIC) : len(_MAGIC) + 32], data[len(_MAGIC) + 32 :]
        if not data.startswith(_MAGIC) or digest != _digest(key, blob):
            _warn(f"the compile cache entry {path} is damaged; it is compiled again")
            return None
        try:
            os.utime(path)  # the access time: mounts often do not keep it
        except OSError:
            logger.debug("cannot mark %s as used", path)
        logger.debug("cache hit: %s", key)
        return blob

    def put(self, key: str, blob: bytes) -> None:
        """Store a blob, then remove the least recently used files above the limit."""
        if len(blob) > self.limit_bytes:
            logger.debug("not cached: %d bytes are above the limit of %d", len(blob), self.limit_bytes)
            return
        try:
            self._entries.mkdir(parents=True, exist_ok=True)
            atomic_write(self._entries / key, _MAGIC + _digest(key, blob) + blob)
            self._evict(keep=self._entries / key)
        except OSError as error:
            self._warn_unusable(error)

    def keep_failed_input(self, text: str) -> Path:
        """Keep a program that the compiler failed on, for a report or another try.

        Raises:
            OSError: The folder cannot be written.
        """
        path = self._failed / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.mlir"
        self._failed.mkdir(parents=True, exist_ok=True)
        atomic_write(path, text.encode())
        self._evict(keep=path)
        return path

    def info(self) -> CacheInfo:
        """Count what the cache holds; an absent or unreadable folder counts as empty."""
        items = list(self._items())
        entries, kernels, failed = (
            sum(path.parent == folder for path, _, _ in items)
            for folder in (self._entries, self._kernels, self._failed)
        )
        return CacheInfo(self.folder, entries, kernels, failed, sum(size for _, size, _ in items), self.limit_bytes)

    def clear(self) -> CacheInfo:
        """Remove everything of the cache and nothing else; return what it held.

        Raises:
            OSError: A file cannot be removed.
        """
        before = self.info()
        for path in [*(path for path, _, _ in self._items()), *self._temporaries()]:
            _remove(path)
        for folder in (self._entries, self._kernels, self._failed):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        return before

    def _items(self) -> Iterator[tuple[Path, int, float]]:
        """Path, size and time of last use of everything that is the cache's own."""
        yield from self._files()
        for path in _listing(self._kernels):
            if _KERNEL_NAME.match(path.name) and path.is_dir():
                try:
                    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
                    yield path, size, path.stat().st_mtime
                except FileNotFoundError:  # another process removed it
                    continue

    def _files(self) -> Iterator[tuple[Path, int, float]]:
        for path in [*_listing(self._entries), *_listing(self._failed)]:
            ours = path.suffix == ".mlir" if path.parent == self._failed else _ENTRY_NAME.match(path.name)
            if not ours or _TEMPORARY_NAME.match(path.name):
                continue
            try:
                status = path.stat()
            except FileNotFoundError:  # another process removed it
                continue
            yield path, status.st_size, status.st_mtime

    def _temporaries(self) -> list[Path]:
        return [p for p in [*_listing(self._entries), *_listing(self._failed)] if _TEMPORARY_NAME.match(p.name)]

    def _evict(self, keep: Path) -> None:
        now = time.time()
        for path in self._temporaries():  # left by a process killed while writing
            try:
                if now - path.stat().st_mtime > _STALE_TEMPORARY_S:
                    path.unlink()
            except FileNotFoundError:
                continue
        items = sorted(self._items(), key=lambda item: item[2])
        total_bytes = sum(size for _, size, _ in items)
        for path, size, _ in items:
            if total_bytes <= self.limit_bytes:
                return
            if path != keep:
                _remove(path)
                total_bytes -= size
                logger.debug("cache entry removed to stay under %d bytes: %s", self.limit_bytes, path.name)

    def _warn_unusable(self, error: OSError) -> None:
        with _warned_lock:
            if self.folder in _warned_folders:
                return
            _warned_folders.add(self.folder)
        _warn(
            f"the compile cache in {self.folder} cannot be used ({error}); going on without it. "
            f"Set {FOLDER_VARIABLE} to a folder that can be written"
        )


def _digest(key: str, blob: bytes) -> bytes:
    """Digest of an entry; the key is part of it, so an entry under another's name counts as damaged."""
    digest = hashlib.sha256(key.encode())
    digest.update(blob)
    return digest.digest()


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _listing(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _warn(message: str) -> None:
    warnings.warn(message, CacheWarning, stacklevel=3)
