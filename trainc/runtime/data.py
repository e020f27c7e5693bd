"""Training data: bytes of files, cut into windows, in an order that is a pure function of seed, epoch and position."""

import errno
import functools
import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.errors import DataError
from trainc.runtime.shuffle import shuffled

_OPEN_FILES = 256
_SCAN_BYTES = 16 * 2**20

Bytes = npt.NDArray[np.uint8]


class Corpus:
    """The bytes of files as one sequence, memory-mapped.

    Args:
        paths: Files, and directories whose files are taken in sorted order of their paths, at any depth. A link to a
            file is taken as that file; a link to a directory inside a directory is not followed, since it may lead in a
            circle: name that directory too.
        suffixes: Take only files with these endings from directories; () takes all. Named files are always taken.
        vocab: Size of the vocabulary; below 256, a byte outside it is refused.

    Attributes:
        files: The files, without empty ones.
        size: Number of bytes.

    Raises:
        DataError: A path is missing or cannot be read, there is nothing to read, or a byte is outside the vocabulary.
    """

    def __init__(self, paths: Iterable[Path | str], *, suffixes: Sequence[str] = (), vocab: int = 256) -> None:
        named = [Path(path) for path in paths]
        found = [file for path in named for file in _files(path, tuple(suffixes))]
        sizes = [_size_bytes(file) for file in found]
        kept = [(file, size) for file, size in zip(found, sizes, strict=True) if size]
        if not kept:
            where = ", ".join(map(str, named)) or "no path"
            ending = f" ending in {', '.join(suffixes)}" if suffixes else ""
            raise DataError(
                f"no data in {where}: expected files{ending} with at least one byte, got {len(found)} empty"
            )
        self.files: tuple[Path, ...] = tuple(file for file, _ in kept)
        self._starts = np.concatenate([[0], np.cumsum([size for _, size in kept], dtype=np.int64)])
        self.size = int(self._starts[-1])
        self._open = functools.lru_cache(_OPEN_FILES)(_map)
        if vocab < 256:
            self._require_below(vocab)

    @property
    def fingerprint(self) -> str:
        """Changes when files come, go or change their size: 16 hexadecimal digits."""
        return hashlib.sha256(self._starts.astype("<i8").tobytes()).hexdigest()[:16]

    def read(self, start: int, count: int) -> Bytes:
        """Bytes [start, start + count) as a new array, across files.

        Raises:
            DataError: The range leaves the data, or a file cannot be read any more.
        """
        if start < 0 or count < 0 or start + count > self.size:
            raise DataError(f"bytes {start}..{start + count} are outside the data of {self.size} bytes")
        out = np.empty(count, np.uint8)
        index = int(np.searchsorted(self._starts, start, side="right")) - 1
        done = 0
        while done < count:
            offset = start + done - int(self._starts[index])
            expected = min(count - done, int(self._starts[index + 1]) - start - done)
            part = self._open(self.files[index])[offset : offset + expected]
            if part.size != expected:
                raise DataError(f"{self.files[index]} became shorter while it was read; start again")
            out[done : done + part.size] = part
            done += part.size
            index += 1
        return out

    def windows(self, length: int) -> "Windows":
        """All windows of `length` inputs and the byte after; neighbours share that byte.

        Raises:
            DataError: The data is shorter than one window.
        """
        if self.size < length + 1:
            raise DataError(
                f"the data has {self.size} bytes ({self.files[0]} and {len(self.files) - 1} more files); one window "
                f"of length {length} needs {length + 1}"
            )
        return Windows(self, length, 0, (self.size - 1) // length)

    def _require_below(self, vocab: int) -> None:
        for file in self.files:
            data = self._open(file)
            for start in range(0, data.size, _SCAN_BYTES):
                bad = np.flatnonzero(data[start : start + _SCAN_BYTES] >= vocab)
                if bad.size:
                    offset = start + int(bad[0])
                    raise DataError(
                        f"{file} has byte {data[offset]} at offset {offset}, outside the vocabulary of {vocab}; "
                        "use other data or a model with vocab 256"
                    )


@dataclass(frozen=True)
class Windows:
    """A range of a corpus's windows.

    Attributes:
        corpus: The data.
        length: Inputs of one window, which holds one byte more.
        first: The range's first window in the corpus.
        count: Number of windows.
    """

    corpus: Corpus
    length: int
    first: int
    count: int

    def __len__(self) -> int:
        return self.count

    def read(self, indices: Iterable[int]) -> Bytes:
        """Windows of this range by index, as uint8 [windows, length + 1]."""
        rows = [self.corpus.read((self.first + int(i)) * self.length, self.length + 1) for i in indices]
        return np.stack(rows)

    def split(self, fraction: float) -> tuple["Windows", "Windows"]:
        """Cut the last `fraction` of the windows off, for validation; each part keeps at least one window.

        Args:
            fraction: In (0, 1).

        Returns:
            The windows to train on, and those to validate on.

        Raises:
            DataError: There are fewer than two windows, or the fraction is out of range.
        """
        if not 0.0 < fraction < 1.0:
            raise DataError(f"the validation part must be a fraction in (0, 1), got {fraction}")
        if self.count < 2:
            raise DataError(f"data of {self.count} window cannot be split for validation; give more data")
        kept = min(max(self.count - round(self.count * fraction), 1), self.count - 1)
        return replace(self, count=kept), replace(self, first=self.first + kept, count=self.count - kept)


class Batches:
    """Windows in shuffled order, epoch after epoch without end; a batch may reach into the next epoch.

    Args:
        windows: The windows to draw from.
        seed: Selects the order.
        epoch: Where to begin: passes over the windows so far.
        position: Where to begin: windows taken in this epoch.
    """

    def __init__(self, windows: Windows, seed: int, epoch: int = 0, position: int = 0) -> None:
        self.windows, self.seed, self.epoch, self.position = windows, seed, epoch, position

    def next(self, rows: int) -> Bytes:
        """The next `rows` windows, uint8 [rows, length + 1]; the position moves on behind them."""
        indices: list[int] = []
        while len(indices) < rows:
            take = min(rows - len(indices), self.windows.count - self.position)
            places = np.arange(self.position, self.position + take)
            indices.extend(shuffled(places, self.windows.count, self.seed, self.epoch).tolist())
            self.position += take
            if self.position == self.windows.count:
                self.epoch, self.position = self.epoch + 1, 0
        return self.windows.read(indices)

    def state(self) -> dict[str, Any]:
        """The position, and what it is a position in, as plain JSON values."""
        return {
            "seed": self.seed,
            "epoch": self.epoch,
            "position": self.position,
            "length": self.windows.length,
            "first": self.windows.first,
            "windows": self.windows.count,
            "fingerprint": self.windows.corpus.fingerprint,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go to a position that `state` told.

        Raises:
            DataError: It belongs to other data, another split or another seed.
        """
        here = self.state()
        for key, value in here.items():
            if key not in ("epoch", "position") and state.get(key) != value:
                raise DataError(
                    f"the run was trained on other data: {key} was {state.get(key)!r}, now it is {value!r}; "
                    "give the same paths, split and seed"
                )
        self.epoch, self.position = int(state["epoch"]), int(state["position"])


def _files(path: Path, suffixes: tuple[str, ...]) -> list[Path]:
    if path.is_dir():
        found = (Path(folder, name) for folder, _, names in os.walk(path, onerror=_refuse) for name in names)
        wanted = [file for file in found if file.is_file() and (not suffixes or file.name.endswith(suffixes))]
        return sorted(wanted, key=lambda file: file.relative_to(path).as_posix())
    if not path.exists():
        raise DataError(f"{path} does not exist; expected a file or directory of data")
    return [path]


def _refuse(error: OSError) -> None:
    raise DataError(f"{error.filename} cannot be read: {error.strerror}") from error


def _size_bytes(file: Path) -> int:
    try:
        size_bytes = file.stat().st_size
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error
    if not os.access(file, os.R_OK):  # found now, not when a run of hours comes to it
        raise DataError(f"{file} cannot be read: {os.strerror(errno.EACCES)}")
    return size_bytes


def _map(file: Path) -> Bytes:
    try:
        return np.memmap(file, np.uint8, "r")
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read: {error}") from error
