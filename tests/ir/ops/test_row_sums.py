"""Sums over rows, below and above the number of rows from which they are taken in groups."""

import numpy as np
import pytest

from tests.ir.gradcheck import run
from trainc.ir.backward import backward
from trainc.ir.ops.rms_norm import rms_norm
from trainc.ir.ops.row_sums import sum_rows


@pytest.mark.parametrize("rows", [1, 255, 256, 257, 320])
def test_every_row_counts_once(rows):
    x = np.random.default_rng(0).standard_normal((rows, 5))
    (found,) = run(sum_rows, [x])
    np.testing.assert_allclose(found, x.sum(axis=0), rtol=0, atol=1e-12)  # float64


def test_a_norm_s_weight_gradient_over_groups():
    rng = np.random.default_rng(1)
    x, weight, d_out = rng.standard_normal((288, 6)), rng.standard_normal(6), rng.standard_normal((288, 6))
    (found,) = run(lambda x, w, d: [*backward(rms_norm(x, w, 0.0), [w], d)], [x, weight, d_out])
    expected = (d_out * x / np.sqrt((x * x).mean(axis=1, keepdims=True))).sum(axis=0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)  # float64
