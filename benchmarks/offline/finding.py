"""What a check found in one executable."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """What a check found in one executable.

    Attributes:
        kernels: Names of its kernels.
        problems: What is wrong with it, in words; none if it is right.
        notes: What could not be checked, in words.
        matrix: Number of its instructions that multiply matrices of bfloat16; None if its code could not be read.
    """

    kernels: frozenset[str]
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    matrix: int | None = 0
