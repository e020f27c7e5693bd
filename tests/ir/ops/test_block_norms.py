import numpy as np
import pytest

from tests.ir.gradcheck import check_forward, run, traced
from trainc.core.errors import DtypeError, ShapeError
from trainc.ir.ops.block_norms import BLOCK, block_norms
from trainc.ir.tensor import Aval


@pytest.mark.parametrize("blocks", [1, 3, 65])
def test_blocks(blocks):
    rng = np.random.default_rng(16)
    g = rng.standard_normal(blocks * BLOCK)
    g[:BLOCK] = 0.0
    largest, sums = check_forward(block_norms, [g])
    np.testing.assert_allclose(largest**2 * sums, (g.reshape(-1, BLOCK) ** 2).sum(axis=1), rtol=1e-12)
    assert largest[0] == sums[0] == 0.0


def test_rows_are_blocks():
    g = np.random.default_rng(17).standard_normal((5, BLOCK))
    for rows, flat in zip(check_forward(block_norms, [g]), run(block_norms, [g.reshape(-1)]), strict=True):
        np.testing.assert_array_equal(rows, flat)


@pytest.mark.parametrize("size", [1e20, 1e-30, 1e38])
def test_neither_overflow_nor_underflow_in_float32(size):
    g = np.full(2 * BLOCK, size, np.float32)
    g[1::2] *= -1
    largest, sums = run(block_norms, [g], dtype=np.float32)
    np.testing.assert_array_equal(largest, np.float32(size))
    np.testing.assert_array_equal(sums, BLOCK)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_shows_in_its_block(bad):
    g = np.ones(3 * BLOCK)
    g[BLOCK + 5] = bad
    with np.errstate(invalid="ignore"):  # inf / inf, in a sum that means nothing
        largest, _ = run(block_norms, [g])
    np.testing.assert_array_equal(largest, [1.0, abs(bad), 1.0])


def test_refusals_name_the_op():
    with pytest.raises(ShapeError, match=r"train\.block_norms.*multiple of 64"):
        traced(block_norms, [Aval((65,))])
    with pytest.raises(ShapeError, match=r"train\.block_norms.*g \(N,\)"):
        traced(block_norms, [Aval((1, 1, 64))])
    with pytest.raises(ShapeError, match=r"train\.block_norms.*\(2, 64\)"):
        traced(block_norms, [Aval((2, 65))])
    with pytest.raises(DtypeError, match=r"train\.block_norms.*float"):
        traced(block_norms, [Aval((64,), "i32")])
