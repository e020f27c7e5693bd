"""Masks: which elements a map computes on, told from their positions.

Every causal, prefix and padding mask of the layer ops is one of these conditions, called inside the function of a
map. A masked score becomes MASKED before its exponential is taken.
"""

from trainc.ir.scalar import Scalar, index

MASKED = -1e30
"""A score that nothing attends to: finite, so that no NaN arises from it, and its exponential is exactly zero."""


def causal(query: int, key: int, *, offset: Scalar | int = 0, group: int = 1) -> Scalar:
    """Return whether the query of an element may see its key: key position <= query position.

    Args:
        query: Output dimension of the surrounding map that holds query rows; row r belongs to token r // group.
        key: Output dimension that holds keys, one a token.
        offset: Position of the first query token minus that of the first key, an int or an i32 Scalar; negative
            values hide that many of the latest keys (-1 is the strict mask).
        group: Consecutive rows that share a token.

    Returns:
        i1 Scalar.
    """
    # r // group >= j - offset, multiplied out so that no division is left.
    return index(key) * group <= index(query) + offset * group


def span(dim: int, length: Scalar | int, *, start: Scalar | int = 0) -> Scalar:
    """Return whether a position is one of `length` consecutive ones; with start 0, a prefix.

    Args:
        dim: Output dimension of the surrounding map.
        length: Number of positions, an int or an i32 Scalar.
        start: The first one, an int or an i32 Scalar.

    Returns:
        i1 Scalar.
    """
    position = index(dim)
    return (position >= start) & (position < start + length)
