import numpy as np
import pytest

from trainc.core.accumulation import accumulation_is_aligned, additions_after, combine, is_power_of_two, leaf
from trainc.core.errors import UsageError


def floats(bits: list[str]) -> np.ndarray:
    return np.array([int(b, 16) for b in bits], np.uint32).view(np.float32)


def test_golden_table(golden) -> None:
    for tokens, steps, aligned in golden("accumulation")["aligned"]:
        assert accumulation_is_aligned(tokens, steps) == aligned, (tokens, steps)


def test_golden_sums(golden) -> None:
    for case in golden("accumulation")["combined"]:
        if "error" in case:
            continue
        total = combine([floats(bits) for bits in case["inputs_hex"]], np.add)
        assert total.tobytes() == floats(case["out"]["f32_hex"]).tobytes()


def test_leaf() -> None:
    cases = {1: 1, 100: 100, 128: 128, 129: 128, 131072: 128, 131073: 129, 262144: 256}
    assert {k: leaf(k) for k in cases} == cases


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
def test_combine_is_the_tree_over_adjacent_pairs(count: int) -> None:
    level = [str(i) for i in range(count)]
    while len(level) > 1:
        level = [f"({a}+{b})" for a, b in zip(level[::2], level[1::2], strict=True)]
    assert combine([str(i) for i in range(count)], lambda a, b: f"({a}+{b})") == level[0]


def test_few_sums_are_alive() -> None:
    alive, most = 0, 0
    for index in range(64):
        most = max(most, alive := alive + 1)
        alive -= additions_after(index)
    assert (alive, most) == (1, 7)


@pytest.mark.parametrize("count", [0, 3, 5, 6])
def test_only_powers_of_two(count: int) -> None:
    assert not is_power_of_two(count)
    with pytest.raises(UsageError, match="power of two"):
        combine([np.float32(0)] * count, np.add)


@pytest.mark.parametrize(("tokens", "steps", "name"), [(0, 1, "term"), (128, 0, "accumulation_steps")])
def test_refusals(tokens: int, steps: int, name: str) -> None:
    with pytest.raises(UsageError, match=name):
        accumulation_is_aligned(tokens, steps)
