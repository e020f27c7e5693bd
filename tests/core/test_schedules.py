import sys
from fractions import Fraction

import numpy as np
import pytest

from trainc.core.errors import ConfigError, UnsupportedError, UsageError
from trainc.core.schedules import (
    ConstantLR,
    Schedule,
    WarmupCosineLR,
    WarmupLinearLR,
    cos_pi,
    nearest_float32,
    schedule_from_config,
)


def test_golden_rates_are_bit_equal(golden) -> None:
    checked = 0
    for expected in golden("schedules").values():
        schedule = schedule_from_config(expected["config"])
        assert schedule.config() == expected["config"]
        for step, rate in expected["lr"].items():
            assert schedule.lr_at(int(step)) == rate["value"]
            assert f"{schedule.bits_at(int(step)):08x}" == rate["hex"]
            checked += 1
    assert checked == 84


def test_warmup_decay_and_end() -> None:
    schedule = WarmupLinearLR(1.0, 4, 12, 0.5)
    assert schedule.lr_values(14).tolist() == [
        0.25, 0.5, 0.75, 1.0, 0.9375, 0.875, 0.8125, 0.75, 0.6875, 0.625, 0.5625, 0.5, 0.5, 0.5,
    ]  # fmt: skip
    assert schedule.lr_values(3).dtype == np.float32
    assert WarmupCosineLR(1.0, 0, 2).lr_at(1) == 0.5
    assert WarmupCosineLR(1.0, 0, 3).lr_values(3).tolist() == [0.75, 0.25, 0.0]
    assert WarmupLinearLR(1.0, 5, 5, 0.5).lr_values(6).tolist()[3:] == [np.float32(0.8), 1.0, 0.5]
    assert ConstantLR(0.5, 2, 3, 0.1).lr_values(5).tolist() == [0.25, 0.5, 0.5, 0.5, 0.5]


def test_cosine_is_the_nearest_float32() -> None:
    """float64's cosine is good to 1e-16: where that decides between two float32 values, both agree."""
    schedule = WarmupCosineLR(3e-4, 200, 10000, 3e-5)
    peak, low = float(np.float32(3e-4)), float(np.float32(3e-5))
    for step in (201, 1234, 5000, 7777, 9999):
        progress = (step - 200) / 9800
        near = low + (peak - low) * (1 + np.cos(np.pi * progress)) / 2
        assert abs(schedule.lr_at(step) - near) <= np.spacing(np.float32(near)) / 2 * 1.001


def test_cos_pi_to_sixty_digits() -> None:
    # cos(pi/4)**2 = 1/2, cos(pi/5) = (1 + sqrt 5) / 4, and the double angle formula.
    error = Fraction(1, 10**75)
    assert abs(cos_pi(Fraction(1, 4)) ** 2 * 2 - 1) < error
    assert abs((4 * cos_pi(Fraction(1, 5)) - 1) ** 2 - 5) < 10 * error
    for p in (Fraction(1, 7), Fraction(1, 1000003), Fraction(2, 9), Fraction(499, 1000)):
        assert abs(2 * cos_pi(p) ** 2 - 1 - cos_pi(2 * p)) < 10 * error
        assert cos_pi(1 - p) == -cos_pi(p)
    assert [cos_pi(Fraction(n, 6)) for n in (0, 2, 3, 4, 6)] == [1, Fraction(1, 2), 0, Fraction(-1, 2), -1]


def test_nearest_float32_breaks_ties_to_even() -> None:
    ulp = Fraction(1, 2**23)
    assert nearest_float32(1 + ulp / 2) == 1.0
    assert nearest_float32(1 + ulp * 3 / 2) == np.float32(1 + 2 * 2.0**-23)
    # Rounding first to float64 would land on the middle and then go the wrong way.
    assert nearest_float32(1 + ulp / 2 + Fraction(1, 2**80)) == np.float32(1 + 2.0**-23)
    assert nearest_float32(1 + ulp * 3 / 2 - Fraction(1, 2**80)) == np.float32(1 + 2.0**-23)
    assert nearest_float32(Fraction(1, 2**149) * 3 / 4) == np.float32(2.0**-149)
    assert nearest_float32(Fraction(0)) == 0.0


@pytest.mark.parametrize("kind", [ConstantLR, WarmupLinearLR, WarmupCosineLR])
def test_config_round_trip(kind: type[Schedule]) -> None:
    schedule = kind(3e-4, 10, 100, 1e-5)
    again = Schedule.from_config(schedule.config())
    assert type(again) is kind
    assert again == schedule
    assert hash(again) == hash(schedule)
    assert again.lr_values(120).tobytes() == schedule.lr_values(120).tobytes()


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((-1e-3,), "peak_lr"),
        ((float("nan"),), "peak_lr"),
        ((float("inf"),), "peak_lr"),
        ((1e39,), "peak_lr"),
        (("1e-3",), "peak_lr"),
        ((1e-3, -1), "warmup_steps"),
        ((1e-3, 1.5), "warmup_steps"),
        ((1e-3, True), "warmup_steps"),
        ((1e-3, 8, 7), "total_steps"),
        ((1e-3, 0, 0), "total_steps"),
        ((1e-3, 0, 10, -1.0), "min_lr"),
    ],
)
def test_refusals_name_the_argument(arguments: tuple, name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} "):
        WarmupCosineLR(*arguments)


@pytest.mark.parametrize("t", [0, -1, 1.0, None, True])
def test_steps_count_from_one(t) -> None:
    with pytest.raises(UsageError, match=r"^t, "):
        ConstantLR(1e-3).lr_at(t)
    with pytest.raises(UsageError, match=r"^n must"):
        ConstantLR(1e-3).lr_values(t)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"kind": "cosine"}, "peak_lr"),
        ({"peak_lr": 1e-3}, "kind"),
        ({"kind": "step", "peak_lr": 1e-3}, "kind"),
        ({"kind": ["cosine"], "peak_lr": 1e-3}, "kind"),
        ({"kind": "cosine", "peak_lr": 1e-3, "gamma": 0.1}, "gamma"),
    ],
)
def test_config_refusals(config: dict, name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} "):
        schedule_from_config(config)


def test_the_plot_shows_the_rates(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    schedule = WarmupCosineLR(3e-4, 201, 10000, 3e-5)
    figure = schedule.plot(out=tmp_path / "rates.png")
    assert (tmp_path / "rates.png").read_bytes().startswith(b"\x89PNG")
    steps, rates = figure.axes[0].lines[0].get_data()
    assert steps[0] == 1
    assert steps[-1] == 11000
    assert {201, 10000} <= set(steps), "the corners of the curve are drawn, however few steps are"
    assert len(steps) < 500
    assert rates.tolist() == [schedule.lr_at(int(step)) for step in steps]


@pytest.mark.parametrize(
    ("schedule", "steps", "last"),
    [
        (ConstantLR(1e-3), None, 10),
        (ConstantLR(1e-3, 50), None, 110),
        (WarmupLinearLR(1e-3, 5, 100), None, 110),
        (WarmupLinearLR(1e-3, 5, 100), 3, 3),
        (WarmupLinearLR(1e-3), 1, 1),
    ],
)
def test_the_plot_ends_where_asked(schedule: Schedule, steps: int | None, last: int) -> None:
    pytest.importorskip("matplotlib")
    drawn = schedule.plot(steps).axes[0].lines[0].get_xdata()
    assert drawn.tolist() == list(range(1, last + 1))


def test_the_plot_refuses_no_steps() -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(UsageError, match=r"^steps must"):
        ConstantLR(1e-3).plot(0)


def test_the_plot_without_its_extra(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UnsupportedError, match=r"trainc\[plot\]"):
        ConstantLR(1e-3).plot()
