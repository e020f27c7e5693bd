"""Reading JSON objects strictly: a missing, unknown or wrong field is an `ArtifactError` that names it."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from trainc.core.errors import ArtifactError

DYNAMIC = -1
"""A dimension that each call chooses; every dynamic dimension of one entry has the same size."""

_T = TypeVar("_T")


class Fields:
    """The fields of one JSON object, taken one by one; `done` refuses what was not asked for."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, Mapping):
            raise ArtifactError(f"manifest: {where} must be an object, got {value!r:.60}")
        self._value, self._where, self._taken = value, where, set[str]()

    def take(self, name: str, kind: type[_T] | tuple[type[_T], ...]) -> _T:
        """Take a field of a type."""
        self._taken.add(name)
        if name not in self._value:
            raise ArtifactError(f"manifest: {self.path(name)} is missing; compile the artifact again")
        value = self._value[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            wanted = kind.__name__ if isinstance(kind, type) else " or ".join(k.__name__ for k in kind)
            raise ArtifactError(f"manifest: {self.path(name)} must be {wanted}, got {value!r:.60}")
        return value

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Take a field that is one of some texts."""
        value = self.take(name, str)
        if value not in choices:
            raise ArtifactError(f"manifest: {self.path(name)} must be one of {list(choices)}, got {value!r}")
        return value

    def natural(self, name: str) -> int:
        """Take a whole number of at least 0."""
        value = self.take(name, int)
        if value < 0:
            raise ArtifactError(f"manifest: {self.path(name)} must not be negative, got {value}")
        return value

    def shape(self, name: str) -> tuple[int, ...]:
        """Take dimensions: whole numbers of at least 1, or `DYNAMIC`."""
        value = self.take(name, list)
        if any(not isinstance(dim, int) or isinstance(dim, bool) or (dim < 1 and dim != DYNAMIC) for dim in value):
            raise ArtifactError(f"manifest: {self.path(name)} must hold dimensions of at least 1, got {value!r:.60}")
        return tuple(value)

    def strings(self, name: str) -> tuple[str, ...]:
        """Take a list of texts."""
        value = self.take(name, list)
        if any(not isinstance(item, str) for item in value):
            raise ArtifactError(f"manifest: {self.path(name)} must hold strings, got {value!r:.60}")
        return tuple(value)

    def naturals(self, name: str) -> tuple[int, ...]:
        """Take a list of whole numbers of at least 1."""
        value = self.take(name, list)
        if any(not isinstance(item, int) or isinstance(item, bool) or item < 1 for item in value):
            raise ArtifactError(f"manifest: {self.path(name)} must hold whole numbers of at least 1, got {value!r:.60}")
        return tuple(value)

    def each(self, name: str, read: Callable[[str, object], _T]) -> dict[str, _T]:
        """Take an object of any keys; `read` gets each key and value."""
        return {key: read(key, item) for key, item in self.take(name, dict).items()}

    def path(self, name: str) -> str:
        """Name a field in an error."""
        return f"{self._where}.{name}" if self._where else name

    def done(self) -> None:
        """Refuse the fields that were not taken."""
        unknown = sorted(set(self._value) - self._taken)
        if unknown:
            raise ArtifactError(f"manifest: {self.path(unknown[0])} is not known here; it needs another trainc version")
