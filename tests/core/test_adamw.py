import numpy as np
import pytest

from trainc.core.adamw import COEFFICIENT_NAMES, AdamWSettings, clip_factor, coefficients, power
from trainc.core.errors import ConfigError, UsageError
from trainc.core.float32 import fma


def floats(bits: list[str]) -> np.ndarray:
    return np.array([int(b, 16) for b in bits], np.uint32).view(np.float32)


def update(p, m, v, g, k) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One AdamW step in the order and with the fused operations of the compiled update."""
    m = fma(k["c1"], g, k["b1"] * m)
    v = fma(k["c2"], g * g, k["b2"] * v)
    denominator = np.sqrt(v) / k["rb"] + k["eps"]
    return fma(-k["step"], m / denominator, p * k["decay"]), m, v


def test_golden_steps_are_bit_equal(golden) -> None:
    case = golden("optimizers")["adamw_lr1e-3_wd0.01"]
    settings = AdamWSettings(lr=1e-3, weight_decay=0.01)
    for tensor, start in enumerate(case["w0"]):
        p = floats(start["f32_hex"])
        m, v = np.zeros_like(p), np.zeros_like(p)
        for step, grads in enumerate(case["grads"], start=1):
            g = floats(grads[tensor])
            p, m, v = update(p, m, v, g, coefficients(settings, 1e-3, step))
            if f"after_{step}" in case:
                assert p.tobytes() == floats(case[f"after_{step}"][tensor]["f32_hex"]).tobytes(), step


def test_names_types_and_values() -> None:
    k = coefficients(AdamWSettings(lr=0.5, weight_decay=0.25), 0.125, 1, clip=0.5)
    assert tuple(k) == COEFFICIENT_NAMES
    assert {type(value) for value in k.values()} == {np.float32}
    assert k["clip"] == 0.5
    assert k["decay"] == np.float32(1 - 0.125 * 0.25)
    # In the first step the bias corrections undo 1 - beta.
    assert k["step"] == np.float32(0.125) / k["c1"]
    assert k["rb"] == np.sqrt(k["c2"])


def test_power_squares_from_the_lowest_bit() -> None:
    base = np.float32(0.9)
    square = base * base
    fourth = square * square
    assert power(base, 0) == 1.0
    assert power(base, 1) == base
    assert power(base, 5) == base * fourth
    assert power(base, 6) == square * fourth
    assert power(np.float32(0.999), 10**6) == 0.0


def test_clip_factor() -> None:
    assert clip_factor(5.0, None) == 1.0
    assert clip_factor(0.5, 1.0) == 1.0
    assert clip_factor(0.0, 1.0) == 1.0
    assert clip_factor(4.0, 1.0) == np.float32(1) / (np.float32(4) + np.float32(1e-6))
    assert isinstance(clip_factor(4.0, 1.0), np.float32)


def test_settings_are_float32_and_round_trip() -> None:
    settings = AdamWSettings(lr=3e-4, betas=[0.8, 0.95], max_norm=1)
    assert settings.lr == float(np.float32(3e-4))
    assert settings.betas == (float(np.float32(0.8)), float(np.float32(0.95)))
    assert AdamWSettings(**settings.to_dict()) == settings


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lr", -1.0),
        ("lr", float("nan")),
        ("lr", "fast"),
        ("betas", 0.9),
        ("betas", (0.9,)),
        ("betas", "ab"),
        ("betas", (0.9, 1.0)),
        ("betas", (0.99999999, 0.9)),
        ("eps", -1e-8),
        ("weight_decay", None),
        ("max_norm", 0.0),
        ("max_norm", 1e-60),
        ("max_norm", float("inf")),
    ],
)
def test_refusals_name_the_field(field: str, value) -> None:
    with pytest.raises(ConfigError, match=f"^{field}"):
        AdamWSettings(**{field: value})


def test_steps_count_from_one() -> None:
    with pytest.raises(UsageError, match="step"):
        coefficients(AdamWSettings(), 1e-3, 0)
