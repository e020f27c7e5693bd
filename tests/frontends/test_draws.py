"""Compiled draws: the bits of the host's, for every coordinate; who draws when."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainc.core import philox
from trainc.core.errors import UnsupportedError, UsageError
from trainc.frontends import draws
from trainc.frontends.generator import Generator

COORDINATES = {
    "seed": st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 2**31, 2**32, 2**63, 2**64 - 1])),
    "stream": st.one_of(st.integers(0, 2**32 - 1), st.sampled_from([0, 2**31, 2**32 - 1])),
    "count": st.integers(1, 200),
    # Blocks of four elements: their number takes more than 32 bits from 2**34 on; the last element is 2**64 - 1.
    "offset": st.one_of(st.integers(0, 9), st.integers(2**34 - 9, 2**34), st.integers(2**64 - 205, 2**64 - 200)),
}


@pytest.fixture
def compiled(monkeypatch):
    """Every draw is compiled, in small chunks."""
    monkeypatch.setattr(draws, "COMPILED_ELEMENTS", 1)
    monkeypatch.setattr(draws, "_CHUNK_ELEMENTS", 64)


# The last two have subnormal values, which compiled code would take for zero.
BOUNDS = [(0.0, 1.0), (-4.0, -2.0), (-1e-3, 3.7), (2.0, 2.0), (0.0, 1e-38), (-1e-38, 2e-38)]


@settings(deadline=None, max_examples=60)
@given(**COORDINATES, bounds=st.sampled_from(BOUNDS))
def test_uniform(seed, stream, count, offset, bounds):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draws, "COMPILED_ELEMENTS", 1)
        patch.setattr(draws, "_CHUNK_ELEMENTS", 64)
        got = draws.uniform(seed, stream, count, *bounds, offset)
    assert got.tobytes() == philox.uniform(seed, stream, count, *bounds, offset).tobytes()


@settings(deadline=None, max_examples=60)
@given(**COORDINATES, p=st.one_of(st.floats(0.0, 0.99), st.sampled_from([0.0, 2.0**-24, 0.5, 1.0 - 2.0**-24])))
def test_dropout(seed, stream, count, offset, p):
    values = np.random.default_rng(0).standard_normal(count).astype(np.float32)
    values[0] = np.float32(3e38)
    values[1:2] = np.float32(1e-40)
    coordinates = {"seed": seed, "stream": stream, "p": p, "offset": offset}
    host = draws.dropout(values, **coordinates)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draws, "COMPILED_ELEMENTS", 1)
        patch.setattr(draws, "_CHUNK_ELEMENTS", 64)
        got = draws.dropout(values, **coordinates)
    assert got.tobytes() == host.tobytes()


@pytest.mark.usefixtures("compiled")
def test_a_generator_draws_the_golden_bits(golden):
    rng = golden("rng")
    got = Generator(7).kaiming_uniform((4, 4), 4)
    assert [f"{bits:08x}" for bits in got.view(np.uint32).ravel()] == rng["kaiming_uniform_seed7_4x4_fan4"]["f32_hex"]
    y, key = Generator(7).dropout(np.ones(32, np.float32), 0.5)
    assert [f"{bits:08x}" for bits in y.view(np.uint32)] == rng["dropout_seed7_ones32_p0.5"]["y"]["f32_hex"]
    assert key == rng["dropout_seed7_ones32_p0.5"]["key"]


def test_many_are_compiled_and_few_are_not(monkeypatch):
    drawn = []
    monkeypatch.setattr(draws, "_kernel", drawn.append)
    generator = Generator(1)
    generator.uniform((2**10, 2**10 - 1))
    generator.dropout(np.ones(100, np.float32), 0.5)
    assert drawn == []
    large = generator.uniform((2**10, 2**10))
    generator.dropout(large, 0.5)
    assert drawn == ["uniform", "dropout"]


def test_without_a_compiler_the_host_draws(monkeypatch):
    def absent(*_):
        raise UnsupportedError("no compiler here")

    monkeypatch.setattr(draws, "load_kernel", absent)
    monkeypatch.setattr(draws, "COMPILED_ELEMENTS", 1)
    draws._kernel.cache_clear()
    try:
        assert draws.uniform(7, 0, 8, 0.0, 1.0).tobytes() == philox.uniform(7, 0, 8).tobytes()
    finally:
        draws._kernel.cache_clear()


@pytest.mark.usefixtures("compiled")
def test_coordinates_are_checked_before_anything_is_compiled(monkeypatch):
    monkeypatch.setattr(draws, "_kernel", None)
    x = np.ones(4, np.float32)
    for change in ({"seed": -1}, {"seed": 2**64}, {"stream": 2**32}, {"p": 1.0}, {"offset": -1}):
        with pytest.raises(UsageError):
            draws.dropout(x, **{"seed": 0, "stream": 0, "p": 0.5, "offset": 0, **change})


def test_elements_past_2_to_the_64_are_the_hosts(monkeypatch):
    monkeypatch.setattr(draws, "COMPILED_ELEMENTS", 1)
    monkeypatch.setattr(draws, "_kernel", None)
    got = draws.uniform(0, 0, 8, 0.0, 1.0, 2**64 - 4)
    assert got.tobytes() == philox.uniform(0, 0, 8, offset=2**64 - 4).tobytes()
