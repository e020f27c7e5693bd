"""How the tokens of a step may be split into microbatches, and the order in which their gradients are added."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from trainc.core.errors import UsageError

T = TypeVar("T")

_LEAF = 128
_MAX_LEAVES = 1024


def leaf(k: int) -> int:
    """Returns the number of consecutive terms that a sum over `k` terms adds serially before its tree begins.

    Raises:
        UsageError: `k` is below one.
    """
    if k < 1:
        raise UsageError(f"a sum must have at least one term, got {k}")
    if k <= _LEAF * _MAX_LEAVES:
        return min(k, _LEAF)
    return -(-k // _MAX_LEAVES)


def accumulation_is_aligned(tokens: int, accumulation_steps: int) -> bool:
    """Tells whether the microbatches' sums are whole subtrees of the unsplit step's sum over its tokens.

    Args:
        tokens: Token count of the whole step, at least 1.
        accumulation_steps: Number of microbatches, at least 1.

    Raises:
        UsageError: An argument is below one.
    """
    if accumulation_steps < 1:
        raise UsageError(f"accumulation_steps must be at least 1, got {accumulation_steps}")
    whole = leaf(tokens)
    if not is_power_of_two(accumulation_steps) or tokens % accumulation_steps:
        return False
    if tokens % whole or leaf(tokens // accumulation_steps) != whole:
        return False
    return (tokens // whole) % accumulation_steps == 0


def is_power_of_two(count: int) -> bool:
    """Tells whether `count` is 1, 2, 4, 8, ..."""
    return count >= 1 and count & (count - 1) == 0


def additions_after(index: int) -> int:
    """Returns how many pairs to add once microbatch `index` (from zero) is there.

    Keep the sums so far on a stack: push the microbatch's, then that many times replace the top two by their sum.
    What is left after a power of two of microbatches is the balanced tree over adjacent pairs, and no more than
    log2(count) + 1 sums are alive at a time.
    """
    return (index ^ (index + 1)).bit_length() - 1


def combine(parts: Sequence[T], add: Callable[[T, T], T]) -> T:
    """Returns the sum of `parts` by a balanced tree over adjacent pairs, in ascending order.

    Args:
        parts: A power of two of values.
        add: Adds two values, the earlier one first.

    Raises:
        UsageError: The number of parts is not a power of two.
    """
    if not is_power_of_two(len(parts)):
        raise UsageError(f"the number of microbatches must be a power of two, got {len(parts)}")
    sums: list[T] = []
    for index, part in enumerate(parts):
        sums.append(part)
        for _ in range(additions_after(index)):
            later = sums.pop()
            sums.append(add(sums.pop(), later))
    return sums[0]
