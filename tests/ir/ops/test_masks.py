"""masks: the conditions against their definitions, element by element."""

import numpy as np
import pytest

from tests.ir.gradcheck import run
from trainc.ir.ops.masks import MASKED, causal, span
from trainc.ir.primitives import map_
from trainc.ir.scalar import select


@pytest.mark.parametrize("group", [1, 3])
@pytest.mark.parametrize("offset", [-1, 0, 4])
@pytest.mark.parametrize("traced_offset", [False, True])
def test_causal(group, offset, traced_offset):
    sizes = {"i": 4 * group, "j": 6}

    def build(value):
        return map_(",->ij", lambda one, o: select(causal(0, 1, offset=o, group=group), one, 0.0), *value, sizes=sizes)

    def build_fixed(one):
        return map_(".->ij", lambda e: select(causal(0, 1, offset=offset, group=group), e, 0.0), one, sizes=sizes)

    one = np.float64(1.0)
    (got,) = run(lambda a, b: build((a, b)), [one, np.int32(offset)]) if traced_offset else run(build_fixed, [one])
    row, column = np.indices(got.shape)
    np.testing.assert_array_equal(got, (column <= row // group + offset).astype(float))


@pytest.mark.parametrize(("start", "length"), [(0, 0), (0, 5), (2, 3), (4, 1)])
def test_span(start, length):
    def traced_bounds(one, first, count):
        return map_(",,->i", lambda e, s, n: select(span(0, n, start=s), e, 0.0), one, first, count, sizes={"i": 5})

    def fixed_bounds(one):
        return map_(".->i", lambda e: select(span(0, length, start=start), e, 0.0), one, sizes={"i": 5})

    expected = [float(start <= i < start + length) for i in range(5)]
    one = np.float64(1.0)
    np.testing.assert_array_equal(run(traced_bounds, [one, np.int32(start), np.int32(length)])[0], expected)
    np.testing.assert_array_equal(run(fixed_bounds, [one])[0], expected)


def test_the_masked_score_has_weight_zero():
    assert np.exp(np.float32(MASKED)) == np.exp(np.float64(MASKED)) == 0.0
    assert np.isfinite(np.float32(MASKED) - np.float32(1e30))
