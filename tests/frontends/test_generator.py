import hashlib

import numpy as np
import pytest

from trainc.core.errors import DtypeError, UnsupportedError, UsageError
from trainc.frontends.generator import Generator, StreamsExhaustedError

KEY = {"seed": 7, "stream": 0, "p": 0.5, "scale": 2.0, "offset": 0}


def same_bits(got: np.ndarray, expected: dict) -> bool:
    assert got.dtype == np.float32
    if "shape" in expected:
        assert list(got.shape) == expected["shape"]
        assert [f"{bits:08x}" for bits in got.view(np.uint32).ravel()] == expected["f32_hex"]
    return hashlib.sha256(got.astype("<f4").tobytes()).hexdigest() == expected["sha256_le_bytes"]


def ones(n: int) -> np.ndarray:
    return np.ones(n, np.float32)


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("uniform_seed7_8", lambda: Generator(7).uniform(8)),
        ("uniform_seed0_16", lambda: Generator(0).uniform(16)),
        ("uniform_seed7_8_low-4_high-2", lambda: Generator(7).uniform((8,), -4, -2)),
        ("uniform_seed7_1000_sha", lambda: Generator(7).uniform(1000)),
        ("normal_seed7_8", lambda: Generator(7).normal(8)),
        ("normal_seed7_8_mean0_std0.02", lambda: Generator(7).normal(8, 0.0, 0.02)),
        ("normal_seed7_8_mean1_std2", lambda: Generator(7).normal([8], 1.0, 2.0)),
        ("kaiming_uniform_seed7_4x4_fan4", lambda: Generator(7).kaiming_uniform((4, 4), 4)),
        ("kaiming_uniform_seed7_4x4_fan4_a0", lambda: Generator(7).kaiming_uniform((4, 4), fan_in=4, a=0.0)),
        ("xavier_uniform_seed7_4x4_4_4", lambda: Generator(7).xavier_uniform((4, 4), 4, 4)),
        ("kaiming_normal_seed7_4x4_4", lambda: Generator(7).kaiming_normal((4, 4), 4)),
    ],
)
def test_golden_draws_are_bit_equal(golden, name: str, draw) -> None:
    assert same_bits(draw(), golden("rng")[name])


def test_golden_sequence(golden) -> None:
    expected = golden("rng")["seed7_sequence_uniform4_uniform4_normal4"]
    generator = Generator(7)
    assert same_bits(generator.uniform(4), expected["u0"])
    assert same_bits(generator.uniform(4), expected["u1"])
    assert same_bits(generator.normal(4), expected["n2"])
    assert generator.state_dict() == expected["state"]


def test_golden_dropout(golden) -> None:
    rng = golden("rng")
    generator = Generator(7)
    expected = rng["dropout_seed7_ones32_p0.5"]
    y, key = generator.dropout(ones(32), 0.5)
    assert same_bits(y, expected["y"])
    assert key == expected["key"]
    assert (y != 0).astype(int).tolist() == expected["mask"]

    expected = rng["dropout_seed7_ones8_p0.5_offset5_stream3"]
    fresh = Generator(7)
    y, key = fresh.dropout(ones(8), 0.5, offset=5, stream=3)
    assert same_bits(y, expected["y"])
    assert key == expected["key"]
    assert fresh.state_dict() == expected["state"]


def test_golden_dropout_backward(golden) -> None:
    """The golden gradient was taken with p = 0.1."""
    _, key = Generator(7).dropout(ones(32), 0.1)
    assert same_bits(Generator(0).dropout_backward(ones(32), key), golden("rng")["dropout_backward_same_key_ones"])


def test_dropout_of_slices_equals_the_whole() -> None:
    x = Generator(1).normal((6, 10))
    whole, key = Generator(3).dropout(x, 0.3)
    halves = [
        Generator(3).dropout(x[rows], 0.3, offset=10 * rows.start, stream=0)[0] for rows in (slice(0, 3), slice(3, 6))
    ]
    assert np.concatenate(halves).tobytes() == whole.tobytes()
    assert whole.shape == x.shape
    assert Generator(8).dropout_backward(x, key).tobytes() == whole.tobytes()


def test_dropout_drops_to_positive_zero() -> None:
    y, _ = Generator(3).dropout(-ones(100), 0.5)
    assert not np.signbit(y[y == 0]).any()


def test_xavier_normal_scales_the_normal_draw() -> None:
    np.testing.assert_array_equal(
        Generator(2).xavier_normal((3, 5), 4, 4, gain=2.0), Generator(2).normal((3, 5), 0.0, 1.0)
    )


def test_a_draw_of_any_size_takes_one_stream() -> None:
    generator = Generator(0)
    generator.uniform(1)
    generator.normal((300, 300))
    assert generator.next_stream() == 2
    assert generator.state_dict() == {"seed": 0, "counter": 3}


def test_state_resumes_the_sequence() -> None:
    generator = Generator(5)
    generator.uniform(3)
    resumed = Generator(0)
    resumed.load_state_dict(generator.state_dict())
    assert resumed.normal(7).tobytes() == generator.normal(7).tobytes()


def test_exhaustion() -> None:
    generator = Generator(5)
    generator.load_state_dict({"seed": 5, "counter": 2**32 - 1})
    assert generator.next_stream() == 2**32 - 1
    with pytest.raises(StreamsExhaustedError, match="seed 5"):
        generator.next_stream()
    with pytest.raises(RuntimeError):
        generator.uniform(1)


@pytest.mark.parametrize(
    "state",
    [
        {"seed": 1},
        {"seed": 1, "counter": 0, "extra": 0},
        {"seed": -1, "counter": 0},
        {"seed": 1, "counter": 2**32},
        {"seed": 1, "counter": -1},
        {"seed": 1, "counter": 0.5},
        None,
    ],
)
def test_a_bad_state_changes_nothing(state: dict) -> None:
    generator = Generator(9)
    with pytest.raises(UsageError):
        generator.load_state_dict(state)
    assert generator.state_dict() == {"seed": 9, "counter": 0}


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda g: Generator(-1), "seed"),
        (lambda g: Generator(2**64), "seed"),
        (lambda g: Generator(1.5), "seed"),
        (lambda g: Generator(0, "bogus"), "numeric_mode"),
        (lambda g: g.uniform(0), "shape"),
        (lambda g: g.uniform((3, 0)), "shape"),
        (lambda g: g.normal((3, -1)), "shape"),
        (lambda g: g.uniform(2.5), "shape"),
        (lambda g: g.uniform(1, 1.0, 0.0), "high"),
        (lambda g: g.uniform(1, 0.0, float("inf")), "high"),
        (lambda g: g.uniform(1, -3e38, 3e38), "high - low"),
        (lambda g: g.normal(1, 0.0, -1.0), "std"),
        (lambda g: g.normal(1, float("nan")), "mean"),
        (lambda g: g.kaiming_uniform(1, 0), "fan_in"),
        (lambda g: g.xavier_uniform(1, 1, 0), "fan_out"),
        (lambda g: g.dropout(ones(1), 1.0), "p"),
        (lambda g: g.dropout(ones(1), -0.1), "p"),
        (lambda g: g.dropout(ones(1), 0.5, offset=-1), "offset"),
        (lambda g: g.dropout(ones(1), 0.5, stream=2**32), "stream"),
        (lambda g: g.dropout(np.array([np.nan], np.float32), 0.5), "x"),
        (lambda g: g.dropout_backward(ones(1), {"seed": 1}), "key"),
        (lambda g: g.dropout_backward(ones(1), None), "key"),
        (lambda g: g.dropout_backward(ones(1), {**KEY, "seed": "7"}), "seed"),
        (lambda g: g.dropout_backward(ones(1), {**KEY, "stream": 1.5}), "stream"),
        (lambda g: g.uniform(1, "low"), "low"),
        (lambda g: g.normal(1, 10**400), "mean"),
        (lambda g: g.kaiming_normal(1, 1, gain="x"), "gain"),
        (lambda g: g.kaiming_normal(1, 1, gain=-1.0), "gain"),
        (lambda g: g.xavier_normal(1, 1, 1, gain=None), "gain"),
        (lambda g: g.xavier_uniform(1, 1, 1, gain=[]), "gain"),
        (lambda g: g.dropout(ones(1), "x"), "p, the drop probability"),
        (lambda g: g.dropout(ones(1), None), "p, the drop probability"),
        (lambda g: g.dropout(np.ma.masked_array(ones(2), [False, True]), 0.5), "x must not have masked"),
    ],
)
def test_refusals_name_the_argument_and_take_no_stream(call, name: str) -> None:
    generator = Generator(0)
    with pytest.raises(UsageError, match=name):
        call(generator)
    assert generator.counter == 0


def test_refusals_of_other_types() -> None:
    generator = Generator(0)
    with pytest.raises(DtypeError, match="float64"):
        generator.dropout(np.ones(3), 0.5)
    with pytest.raises(UnsupportedError, match="identical"):
        Generator(0, "identical")
    assert generator.counter == 0
