"""Tensor: a value of a traced program, with its shape and dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainc.ir.mlir import DYNAMIC, dtype_of, shape_of


@dataclass(frozen=True)
class Aval:
    """Shape and dtype of a tensor, without a value.

    Attributes:
        shape: Sizes; DYNAMIC where each call chooses (all dynamic sizes of one function are equal).
        dtype: Dtype name, such as "f32".
    """

    shape: tuple[int, ...]
    dtype: str = "f32"

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join('?' if size == DYNAMIC else str(size) for size in self.shape)}]"


class Tensor:
    """An SSA value of a program being built.

    Attributes:
        value: The MLIR value.
        shape: Static sizes.
        dtype: Dtype name.
    """

    __slots__ = ("dtype", "shape", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.shape = shape_of(value)
        self.dtype = dtype_of(value)

    @property
    def aval(self) -> Aval:
        """Shape and dtype."""
        return Aval(self.shape, self.dtype)

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __repr__(self) -> str:
        return f"Tensor({self.aval})"
