"""Checks that shape rules of ops share: each names the operand, what was expected and what came."""

from trainc.core.errors import DtypeError, ShapeError
from trainc.ir.tensor import Aval

FLOATS = ("f32", "f64", "bf16")


def expect_shape(name: str, operand: Aval, shape: tuple[int, ...]) -> None:
    """Raise ShapeError unless an operand has exactly this shape."""
    if operand.shape != shape:
        raise ShapeError(f"expected {name} of shape {shape}, got {operand.shape}")


def expect_rank(name: str, operand: Aval, rank: int, meaning: str) -> None:
    """Raise ShapeError unless an operand has this rank; `meaning` shows its dimensions, such as "(B, L, D)"."""
    if len(operand.shape) != rank:
        raise ShapeError(f"expected {name} {meaning}, got shape {operand.shape}")


def expect_rank_at_least(name: str, operand: Aval, rank: int, meaning: str) -> None:
    """Raise ShapeError unless an operand has this rank or more."""
    if len(operand.shape) < rank:
        raise ShapeError(f"expected {name} {meaning}, got shape {operand.shape}")


def expect_dtype(name: str, operand: Aval, dtype: str) -> None:
    """Raise DtypeError unless an operand has this dtype."""
    if operand.dtype != dtype:
        raise DtypeError(f"expected {name} of dtype {dtype}, got {operand.dtype}")


def expect_float(name: str, operand: Aval) -> None:
    """Raise DtypeError unless an operand holds floating-point numbers."""
    if operand.dtype not in FLOATS:
        raise DtypeError(f"expected {name} of a float dtype ({', '.join(FLOATS)}), got {operand.dtype}")
