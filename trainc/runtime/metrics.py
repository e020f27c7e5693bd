"""The metrics of a run: one JSON object a line, one line a step."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from trainc.core.errors import DataError
from trainc.core.files import atomic_write

FILE = "metrics.jsonl"


class MetricsWriter:
    """Appends metrics; use it as a context manager.

    Args:
        path: The file.
        after_step: The step the run goes on from: lines of later steps, and a line that a killed run left unfinished,
            are dropped, so that a resumed run's file is that of an unbroken one.

    Raises:
        DataError: The file cannot be written, for example because the disk is full; so do all methods.
    """

    def __init__(self, path: Path, after_step: int = 0) -> None:
        self._path = path
        with self._written():
            kept = b"".join(_lines_up_to(path, after_step))
            if not path.exists() or path.stat().st_size != len(kept):
                atomic_write(path, kept)
            self._stream = open(path, "a", encoding="utf-8", newline="\n")

    def write(self, metrics: Mapping[str, Any]) -> None:
        """Append one line and hand it to the system, so that a killed process loses none."""
        with self._written():
            self._stream.write(json.dumps(dict(metrics), allow_nan=False) + "\n")
            self._stream.flush()

    def sync(self) -> None:
        """Make all lines durable."""
        with self._written():
            os.fsync(self._stream.fileno())

    def close(self) -> None:
        """Close the file."""
        with self._written():
            self._stream.close()

    @contextmanager
    def _written(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DataError(
                f"metrics {self._path} cannot be written: {error.strerror or error}; checkpoints are intact"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_metrics(path: Path | str) -> list[dict[str, Any]]:
    """All complete lines of a metrics file.

    Raises:
        DataError: There is no such file, or a line is no JSON object.
    """
    try:
        lines = Path(path).read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise DataError(f"metrics {path} cannot be read: {error.strerror or error}") from error
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            break
        row = _parse(line)
        if row is None:
            raise DataError(f"metrics {path}, line {number} is no JSON object: {line!r:.80}")
        rows.append(row)
    return rows


def _lines_up_to(path: Path, step: int) -> list[bytes]:
    if not path.exists():
        return []
    kept = []
    for line in path.read_bytes().splitlines(keepends=True):
        row = _parse(line)
        if row is None or not line.endswith(b"\n") or not isinstance(row.get("step"), int) or row["step"] > step:
            break
        kept.append(line)
    return kept


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    return row if isinstance(row, dict) else None
