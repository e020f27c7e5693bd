"""What a verb prints on standard output: one JSON object with --json, text for people otherwise."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def emit_json(value: Mapping[str, Any]) -> None:
    """Prints one JSON object on one line."""
    print(json.dumps(value, allow_nan=False))


def emit(text: str) -> None:
    """Prints text as it is, with a line end."""
    print(text)


def emit_raw(data: bytes) -> None:
    """Writes bytes as they are; a text stream would refuse what is not UTF-8."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def emit_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints columns that are aligned and easy to cut: two spaces apart, no frames."""
    table = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def size(size_bytes: int) -> str:
    """A number of bytes for people, such as 3.1 MiB."""
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
