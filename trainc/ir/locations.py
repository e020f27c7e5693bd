"""Numbered locations: the side table from an op's number to where it came from.

The text given to the compiler carries `loc("trainc":N:0)` only, so modules are byte-reproducible and
hold no paths; diagnostics and profiles are mapped back through this table.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Site:
    """Where an op was traced.

    Attributes:
        op: Name of the op without its dialect.
        layer: Dotted layer path, "" outside every layer.
        file: Source file of the caller.
        line: Line in that file.
    """

    op: str
    layer: str
    file: str
    line: int

    def __str__(self) -> str:
        where = f" in {self.layer}" if self.layer else ""
        return f"{self.op}{where} ({self.file}:{self.line})"


class LocationTable:
    """Sites in order of tracing; an op's number is its index plus one."""

    def __init__(self) -> None:
        self._sites: list[Site] = []

    def add(self, site: Site) -> int:
        """Append a site and return its number."""
        self._sites.append(site)
        return len(self._sites)

    def get(self, number: int | None) -> Site | None:
        """Return the site of a number, or None if the number is unknown."""
        if number is None or not 1 <= number <= len(self._sites):
            return None
        return self._sites[number - 1]

    def __len__(self) -> int:
        return len(self._sites)

    def __iter__(self) -> Iterator[Site]:
        return iter(self._sites)
