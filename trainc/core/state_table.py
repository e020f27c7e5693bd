"""Where each named tensor lies inside one flat buffer.

All state that stays on a device between calls (weights, gradients, moments, decode state) is held in flat buffers of
32-bit elements. Every tensor starts on a boundary of 64 elements (256 bytes), because a device may fault on a view that
starts elsewhere; the elements between tensors are padding and hold zero.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.dtypes import numpy_dtype
from trainc.core.errors import ArtifactError, DtypeError, ShapeError

ALIGNMENT = 64
"""Elements between the starts that a tensor may have."""

STATE_DTYPES = ("f32", "i32")
"""Element types that a tensor of a flat buffer may have: those of 32 bits."""

Flat = npt.NDArray[np.float32]


def padded(size: int) -> int:
    """The next multiple of `ALIGNMENT` that is at least `size`."""
    return -(-size // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class StateTensor:
    """One tensor of a flat buffer.

    Attributes:
        name: Unique name inside its table.
        shape: Its dimensions, each at least 1; `()` is a scalar.
        offset: Index of its first element in the flat buffer, a multiple of `ALIGNMENT`.
        size: Number of its elements.
        dtype: "f32" or "i32".
    """

    name: str
    shape: tuple[int, ...]
    offset: int
    size: int
    dtype: str = "f32"

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The NumPy dtype of the elements."""
        return numpy_dtype(self.dtype)


@dataclass(frozen=True)
class StateTable:
    """The tensors of one flat buffer, in order.

    Attributes:
        name: The table's name, such as "params" or "decode".
        tensors: The tensors in ascending order of offset.
        size: Number of elements of the flat buffer, a multiple of `ALIGNMENT`.
    """

    name: str
    tensors: tuple[StateTensor, ...]
    size: int

    @classmethod
    def build(cls, name: str, tensors: Iterable[tuple[Any, ...]]) -> "StateTable":
        """Lay tensors out one after the other, each on its boundary.

        Args:
            name: The table's name.
            tensors: `(name, shape)` or `(name, shape, dtype)` in the order they are to have.

        Raises:
            ShapeError: A name comes twice, or a dimension is below 1.
            DtypeError: A dtype other than "f32" and "i32".
        """
        placed: list[StateTensor] = []
        seen: set[str] = set()
        offset = 0
        for tensor_name, shape, *rest in tensors:
            dtype = rest[0] if rest else "f32"
            dims = tuple(int(dim) for dim in shape)
            if tensor_name in seen:
                raise ShapeError(f"state {name!r}: tensor {tensor_name!r} comes twice; give every tensor its own name")
            if any(dim < 1 for dim in dims):
                raise ShapeError(f"state {name!r}: tensor {tensor_name!r} needs dimensions of at least 1, got {dims}")
            if dtype not in STATE_DTYPES:
                raise DtypeError(f"state {name!r}: tensor {tensor_name!r} must be one of {STATE_DTYPES}, got {dtype!r}")
            seen.add(tensor_name)
            placed.append(StateTensor(tensor_name, dims, offset, math.prod(dims), dtype))
            offset = padded(offset + placed[-1].size)
        return cls(name, tuple(placed), offset)

    @property
    def names(self) -> tuple[str, ...]:
        """The tensors' names in order."""
        return tuple(tensor.name for tensor in self.tensors)

    def __getitem__(self, name: str) -> StateTensor:
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise KeyError(f"state {self.name!r} has no tensor {name!r}")

    def views(self, flat: Flat) -> dict[str, npt.NDArray[Any]]:
        """Named views of a flat buffer; writing to a view writes to the buffer.

        Args:
            flat: float32 [size], contiguous.

        Raises:
            ShapeError: `flat` is not one contiguous float32 array of `size` elements.
        """
        self._check(flat)
        return {t.name: flat[t.offset : t.offset + t.size].view(t.numpy_dtype).reshape(t.shape) for t in self.tensors}

    def pack(self, arrays: Mapping[str, npt.ArrayLike]) -> Flat:
        """A new flat buffer that holds the given arrays; padding is zero.

        Args:
            arrays: One array for every tensor of the table, of its shape and dtype.

        Raises:
            ShapeError: A tensor is missing, unknown or of another shape.
            DtypeError: An array of another dtype.
        """
        flat = np.zeros(self.size, np.float32)
        self.write(flat, arrays)
        return flat

    def write(self, flat: Flat, arrays: Mapping[str, npt.ArrayLike]) -> None:
        """Copy arrays into an existing flat buffer, all checked before the first is written.

        Raises:
            ShapeError: A tensor is missing, unknown or of another shape; nothing was written.
            DtypeError: An array of another dtype; nothing was written.
        """
        views = self.views(flat)
        missing = [name for name in views if name not in arrays]
        unknown = [name for name in arrays if name not in views]
        if missing or unknown:
            raise ShapeError(
                f"state {self.name!r} needs exactly its {len(views)} tensors; missing: {missing}, unknown: {unknown}"
            )
        sources = {name: np.asarray(arrays[name]) for name in views}
        for name, view in views.items():
            if sources[name].shape != view.shape:
                raise ShapeError(
                    f"state {self.name!r}: tensor {name!r} has shape {view.shape}, got {sources[name].shape}"
                )
            if sources[name].dtype != view.dtype:
                raise DtypeError(f"state {self.name!r}: tensor {name!r} is {view.dtype}, got {sources[name].dtype}")
        for name, view in views.items():
            view[...] = sources[name]

    def to_json(self) -> dict[str, Any]:
        """The table as plain JSON values, without its name (the key it is stored under)."""
        return {
            "size": self.size,
            "tensors": [
                {"name": t.name, "shape": list(t.shape), "offset": t.offset, "size": t.size, "dtype": t.dtype}
                for t in self.tensors
            ],
        }

    @classmethod
    def from_json(cls, name: str, value: object) -> "StateTable":
        """Read what `to_json` wrote and lay it out again, so that a table which does not fit its own rule is refused.

        Raises:
            ArtifactError: The value does not describe a table; the message names the field.
        """
        if not isinstance(value, Mapping) or not isinstance(value.get("tensors"), Sequence):
            raise ArtifactError(f"state {name!r}: expected an object with 'size' and 'tensors', got {value!r:.80}")
        rows = value["tensors"]
        try:
            table = cls.build(name, [(str(row["name"]), row["shape"], row.get("dtype", "f32")) for row in rows])
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ArtifactError(f"state {name!r}: a tensor needs 'name', 'shape' and 'dtype': {error}") from error
        for tensor, row in zip(table.tensors, rows, strict=True):
            for field in ("offset", "size"):
                if row.get(field) != getattr(tensor, field):
                    raise ArtifactError(
                        f"state {name!r}: tensor {tensor.name!r} must have {field} {getattr(tensor, field)}, "
                        f"got {row.get(field)!r}"
                    )
        if value.get("size") != table.size:
            raise ArtifactError(f"state {name!r}: size must be {table.size}, got {value.get('size')!r}")
        return table

    def _check(self, flat: Flat) -> None:
        good = isinstance(flat, np.ndarray) and flat.dtype == np.float32 and flat.shape == (self.size,)
        if not good or not flat.flags.c_contiguous:
            got = f"{flat.dtype} {flat.shape}" if isinstance(flat, np.ndarray) else type(flat).__name__
            raise ShapeError(
                f"state {self.name!r} needs one contiguous float32 array of {self.size} elements, got {got}"
            )
