"""The self-test's parts: draws, fingerprints, what is expected of an output."""

import numpy as np
import pytest

from trainc.core.errors import ArtifactError
from trainc.core.selftest import (
    IGNORED,
    PROJECTIONS,
    Draw,
    Expected,
    SelfTest,
    draw_argument,
    draw_state,
    fingerprint,
    least_norms,
    relative_error,
)
from trainc.core.state_table import StateTable


@pytest.mark.parametrize(
    "draw",
    [
        Draw("uniform", -0.035, 2.0**-0.5),
        Draw("integers", 0, 2**31 - 1),
        Draw("targets", 0, 50257),
        Draw("constant", 7),
    ],
)
def test_a_draw_is_read_as_it_was_written(draw):
    assert Draw.parse("x", draw.text()) == draw


@pytest.mark.parametrize(
    "value", [None, "", "uniform", "uniform 1", "uniform 1 x", "constant nan", "normal 0 1", "constant 1 2"]
)
def test_a_wrong_draw_is_refused(value):
    with pytest.raises(ArtifactError, match=r"selftest\.draws\.ids must be one of"):
        Draw.parse("ids", value)


def test_draws_keep_to_their_bounds_and_differ_by_name():
    shape = (40, 101)
    real = Draw("uniform", -0.25, 0.5).elements("a", shape, "f32")
    assert real.dtype == np.float32
    assert real.shape == shape
    assert -0.25 <= real.min() < -0.24
    assert 0.49 < real.max() <= 0.5
    assert not np.array_equal(real, Draw("uniform", -0.25, 0.5).elements("b", shape, "f32"))
    ids = Draw("integers", 3, 10).elements("ids", shape, "i32")
    assert ids.dtype == np.int32
    assert set(np.unique(ids)) == set(range(3, 10))
    targets = Draw("targets", 0, 7).elements("targets", shape, "i32")
    assert set(np.unique(targets)) == {IGNORED, *range(7)}
    assert 0.2 < np.mean(targets == IGNORED) < 0.3
    assert Draw("constant", -2).elements("step", (), "i32") == -2


def test_a_state_is_drawn_tensor_by_tensor():
    table = StateTable.build("params", [("w", (3, 5)), ("b", (7,))])
    flat = draw_state({"m": Draw("uniform", 1, 2), "m:b": Draw("constant", 9)}, "m", table)
    views = table.views(flat)
    assert (views["w"] >= 1).all()
    assert (views["b"] == 9).all()
    assert np.count_nonzero(flat) == 22  # what lies between the tensors is zero
    assert draw_state({}, "m", table) is None


def test_an_argument_is_drawn_by_entry_or_for_all():
    draws = {"n": Draw("constant", 1), "f:n": Draw("constant", 2)}
    assert draw_argument(draws, "f", "n", (), "i32") == 2
    assert draw_argument(draws, "g", "n", (), "i32") == 1
    with pytest.raises(ArtifactError, match="'x' of entry 'f'"):
        draw_argument(draws, "f", "x", (), "f32")


@pytest.mark.parametrize("size", [1, 63, 32768, 70_001])
def test_projections_tell_the_norm_of_an_error(size):
    rng = np.random.default_rng(size)
    x = rng.normal(size=size)
    error = 1e-3 * rng.normal(size=size)
    estimated = relative_error(fingerprint(x), fingerprint(x + error))
    actual = np.linalg.norm(error) / np.linalg.norm(x)
    assert 0.5 * actual < estimated < 1.7 * actual


def test_the_fingerprint_is_the_norm_and_sums_with_signs():
    found = fingerprint(np.ones((3, 5, 7)))
    assert found.shape == (1 + PROJECTIONS,)
    assert found[0] == pytest.approx(np.sqrt(105))
    assert np.array_equal(found[1:] % 2, np.ones(PROJECTIONS))  # 105 signs
    assert len(set(found[1:])) > 4


def test_one_wrong_element_is_seen():
    x = np.random.default_rng(0).normal(size=100_000)
    y = x.copy()
    y[77_777] += 1
    assert relative_error(fingerprint(x), fingerprint(y)) == pytest.approx(1 / np.linalg.norm(x), rel=1e-6)


def test_elements_in_another_place_are_seen():
    x = np.random.default_rng(0).normal(size=1 << 18)
    for shift in (1, 64, 1 << 15, 1 << 17):
        assert relative_error(fingerprint(x), fingerprint(np.roll(x, shift))) == pytest.approx(2**0.5, rel=0.6)


def test_what_should_be_zero_is_measured_against_its_buffer():
    expected = {"loss": fingerprint([2.0]), "grads.a": fingerprint([0.0]), "grads.b": fingerprint([3.0, 4.0])}
    least = least_norms(expected)
    assert least == pytest.approx({"loss": 0.0, "grads.a": 0.005, "grads.b": 0.005})
    assert relative_error(expected["grads.a"], fingerprint([1e-9]), least["grads.a"]) == pytest.approx(2e-7)
    assert relative_error(expected["grads.a"], fingerprint([1e-2]), least["grads.a"]) == pytest.approx(2.0)
    assert relative_error(expected["grads.b"], fingerprint([3.0, 4.1]), least["grads.b"]) == pytest.approx(
        0.02, rel=0.5
    )


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_no_error_within_a_tolerance(wrong):
    x = np.ones(9)
    expected = Expected(0.9, fingerprint(x))
    x[4] = wrong
    assert not expected.error(fingerprint(x)) <= expected.tolerance


def test_zeros_must_be_zeros():
    expected = Expected(0.5, fingerprint(np.zeros(9)))
    assert expected.error(fingerprint(np.zeros(9))) == 0
    assert expected.error(fingerprint(np.full(9, 1e-20))) == np.inf


def test_what_is_expected_survives_its_text():
    expected = Expected(2.5e-6, fingerprint(np.random.default_rng(0).normal(size=1000)))
    read = Expected.parse("x", expected.text())
    assert read.tolerance == expected.tolerance
    assert expected.error(read.values) < 1e-7
    assert len(expected.text()) < 110


@pytest.mark.parametrize("value", [3, "", "1e-6", "1e-6 AAAA", "nan {0}", "-1 {0}", "1 {0}", "1e-6 {0}=", "1e-6 {1}"])
def test_a_wrong_expectation_is_refused(value):
    right = Expected(0, fingerprint(np.ones(3))).text().split()[1]
    infinite = Expected(0, np.full(1 + PROJECTIONS, np.inf)).text().split()[1]
    with pytest.raises(ArtifactError, match="y must be a tolerance and a fingerprint"):
        Expected.parse("y", value.format(right, infinite) if isinstance(value, str) else value)


def test_a_selftest_is_read_strictly():
    test = SelfTest({"x": Draw("constant", 1)}, {"f": {"y": Expected(0.5, fingerprint(np.ones(3)))}})
    value = test.to_json()
    read = SelfTest.from_json(value)
    assert read.to_json() == value
    for wrong, text in (
        ({**value, "more": 1}, "selftest.more is not known"),
        ({"draws": {}}, "selftest.entries is missing"),
        ({**value, "entries": {"f": 3}}, "selftest.entries.f must be dict"),
        ({**value, "entries": {"f": {"y": 3}}}, "selftest.entries.f.y must be"),
        (3, "selftest must be an object"),
    ):
        with pytest.raises(ArtifactError, match=text):
            SelfTest.from_json(wrong)
