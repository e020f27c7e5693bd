"""Norms, clipping and accumulation: values."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.frontends.optimizers.model import OFFSETS, at_offset
from trainc.frontends.optimizers.adam import AdamW
from trainc.frontends.optimizers.gradients import (
    accumulate_grads,
    accumulation_is_aligned,
    clip_grad_norm_,
)
from trainc.frontends.optimizers.norms import BATCH_ROWS, tensor_norms

BATCH = 64 * BATCH_ROWS

# Four float32 roundings: of the norm, of the sum with 1e-6, of the factor and of the product.
CLIP_ULPS = 4


def exact_norm(arrays):
    return math.sqrt(math.fsum(float(x) ** 2 for a in arrays for x in a.reshape(-1)))


def assert_ulps(got, wanted, ulps):
    """float32 units in the last place, also of values beyond float32."""
    wanted = np.asarray(wanted)
    unit = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(wanted), 2.0**-126))) - 23)
    assert (np.abs(np.asarray(got, np.float64) - wanted) <= ulps * unit).all()


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_the_norm_and_the_scaled_gradients(data):
    sizes = data.draw(st.lists(st.integers(1, 200), min_size=1, max_size=4))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    scale = data.draw(st.sampled_from([1.0, 1e20, 1e-30, 3e37]))
    max_norm = data.draw(st.sampled_from([0.5, 1.0, 1e6, 1e30]))
    values = [(scale * rng.standard_normal(n)).astype(np.float32) for n in sizes]
    arrays = [at_offset(v, data.draw(st.sampled_from(OFFSETS))) for v in values]
    total = clip_grad_norm_(arrays, max_norm)
    norm = exact_norm(values)
    assert_ulps(total, norm, CLIP_ULPS)
    factor = min(1.0, max_norm / (norm + 1e-6))
    for array, value in zip(arrays, values, strict=True):
        assert_ulps(array, factor * value.astype(np.float64), CLIP_ULPS)


def test_the_norm_neither_overflows_nor_underflows():
    big = np.full(100, 1e20, np.float32)
    assert clip_grad_norm_(big, 1.0) == pytest.approx(1e21, rel=1e-7)
    np.testing.assert_allclose(big, 0.1, rtol=1e-6)
    # A norm beyond float32, and a factor that float32 holds as a subnormal only.
    largest = [np.full(77, 3e38, np.float32), np.ones(3, np.float32)]
    assert clip_grad_norm_(largest, 1.0) == pytest.approx(3e38 * math.sqrt(77), rel=1e-7)
    np.testing.assert_allclose(largest[0], 1 / math.sqrt(77), rtol=1e-6)
    small = np.full(100, 1e-37, np.float32)
    assert clip_grad_norm_(small, 1.0) == pytest.approx(1e-36, rel=1e-7)
    assert clip_grad_norm_(np.zeros(5, np.float32), 1.0) == 0.0


def test_subnormal_elements_count_as_zero():
    """Compiled code on a CPU reads and writes zeros for them."""
    assert tensor_norms([np.array([1e-42, 0.0], np.float32)])[0] == 0.0
    assert tensor_norms([np.array([1e-42, 1.0], np.float32)])[0] == 1.0


def test_infinity_only_measures():
    grads = np.full(9, 1e30, np.float32)
    assert clip_grad_norm_(grads, math.inf) == pytest.approx(3e30)
    assert (grads == np.float32(1e30)).all()


def test_no_gradients_have_no_norm():
    assert clip_grad_norm_([], 1.0) == 0.0


@pytest.mark.parametrize("mode", ["deterministic", "fast"])
@pytest.mark.parametrize("size", [63, 64, 65, 64_001, BATCH - 1, BATCH, BATCH + 64, 2 * BATCH + 70])
def test_the_bits_do_not_depend_on_where_a_gradient_lies(size, mode):
    values = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    other = np.ones(70, np.float32)
    norms = {tuple(tensor_norms([other, at_offset(values, offset), other], mode)) for offset in OFFSETS}
    assert len(norms) == 1
    np.testing.assert_allclose(norms.pop()[1], np.linalg.norm(values.astype(np.float64)), rtol=1e-7)


@pytest.mark.parametrize("position", [0, 64, 199, BATCH + 100])
@pytest.mark.parametrize("mode", ["deterministic", "fast"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_named_wherever_it_is(bad, position, mode):
    grads = [np.ones(999, np.float32), at_offset(np.ones(BATCH + 101), 0), np.ones(3, np.float32)]
    grads[1][position] = grads[2][1] = bad
    with pytest.raises(ValueError, match=r"grads\[1\] is not finite"):
        clip_grad_norm_(grads, 0.5, numeric_mode=mode)
    assert (grads[0] == 1).all()


def test_a_step_with_max_norm_is_clipping_and_a_step():
    rng = np.random.default_rng(1)
    values = [rng.standard_normal(n).astype(np.float32) for n in (40, 5)]
    grads, others = ([3 * v for v in values] for _ in range(2))
    params, clipped = ([v.copy() for v in values] for _ in range(2))
    norm = AdamW(params, lr=0.1).step(grads, max_norm=1.0)
    assert norm == clip_grad_norm_(others, 1.0)
    AdamW(clipped, lr=0.1).step(others)
    for a, b in zip([*params, *grads], [*clipped, *others], strict=True):
        assert a.tobytes() == b.tobytes()


def floats(bits):
    return np.array([int(b, 16) for b in bits], np.uint32).view(np.float32)


def test_golden_sums(golden):
    for case in golden("accumulation")["combined"]:
        entries = [floats(bits) for bits in case.get("inputs_hex", [])]
        if "error" in case:
            continue
        assert accumulate_grads(entries, None).tobytes() == floats(case["out"]["f32_hex"]).tobytes()
        nested = accumulate_grads([[e, -e] for e in entries], None)
        assert nested[0].tobytes() == floats(case["out"]["f32_hex"]).tobytes()
        assert (nested[1] == -nested[0]).all()


def test_golden_table(golden):
    for tokens, steps, aligned in golden("accumulation")["aligned"]:
        for mode in (None, "deterministic", "fast", "identical"):
            assert accumulation_is_aligned(tokens, steps, mode) is aligned


def test_a_sum_is_a_new_array():
    one = np.ones(3, np.float32)
    total = accumulate_grads([one], 128)
    total += 1
    assert (one == 1).all()


def test_microbatches_may_be_iterators_and_single_numbers():
    a, b = np.full(3, 1.0, np.float32), np.full((2, 2), 2.0, np.float32)
    total = accumulate_grads(iter([iter([a, b]), iter([a, b])]), None)
    assert [t.tolist() for t in total] == [(2 * a).tolist(), (2 * b).tolist()]

    single = accumulate_grads([np.array(1.5, np.float32)] * 2, None)
    assert isinstance(single, np.ndarray)
    assert (single.shape, single.dtype, float(single)) == ((), np.float32, 3.0)
