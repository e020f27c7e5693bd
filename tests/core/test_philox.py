import hashlib
import time

import numpy as np
import pytest

from trainc.core import philox
from trainc.core.errors import UsageError


def philox_block(counter: tuple[int, int, int, int], key: tuple[int, int]) -> list[int]:
    """Philox4x32-10 in plain integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [p1 >> 32 ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, p0 >> 32 ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [k[0] + 0x9E3779B9 & 0xFFFFFFFF, k[1] + 0xBB67AE85 & 0xFFFFFFFF]
    return c


@pytest.mark.parametrize("seed", [0, 7, 2**32, 2**64 - 1])
@pytest.mark.parametrize("stream", [0, 3, 2**32 - 1])
@pytest.mark.parametrize("block", [0, 5, 2**32 - 2, 2**64 - 4])
def test_words_match_plain_integers(seed: int, stream: int, block: int) -> None:
    got = philox.words(seed, stream, block, 4)
    key = (seed & 0xFFFFFFFF, seed >> 32)
    for row, index in zip(got, range(block, block + 4), strict=True):
        assert row.tolist() == philox_block((index & 0xFFFFFFFF, index >> 32, stream, 0), key)


def test_published_vector() -> None:
    """The all-zero and the all-ones known answers of the Random123 distribution, in plain integers."""
    assert philox_block((0, 0, 0, 0), (0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    ones = 0xFFFFFFFF
    assert philox_block((ones,) * 4, (ones,) * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


@pytest.mark.parametrize(("name", "mean_or_low", "std_or_high"), [("uniform", -4.0, -2.0), ("normal", 1.0, 2.0)])
def test_any_slice_equals_the_whole(name: str, mean_or_low: float, std_or_high: float) -> None:
    draw = getattr(philox, name)
    whole = draw(5, 2, 70_000, mean_or_low, std_or_high)
    for offset, count in ((0, 1), (1, 2), (3, 5), (32_767, 33_000), (69_999, 1), (40, 0)):
        part = draw(5, 2, count, mean_or_low, std_or_high, offset)
        assert part.tobytes() == whole[offset : offset + count].tobytes()


def test_chunks_do_not_show() -> None:
    whole = philox.uniform(1, 0, 3 * 4 * 8192 + 7)
    words = philox.words(1, 0, 0, 3 * 8192 + 2).reshape(-1)[: whole.size]
    np.testing.assert_array_equal(whole, (words >> 8) * 2.0**-24)


def test_keep_mask_follows_the_uniform_draw() -> None:
    unit = philox.uniform(9, 4, 5000)
    for p in (0.0, 0.1, 0.5, 0.999):
        np.testing.assert_array_equal(philox.keep_mask(9, 4, 5000, p), unit >= np.float32(p))


def test_ranges_and_moments() -> None:
    x = philox.uniform(3, 0, 200_000, -1.0, 1.0)
    assert x.min() >= -1.0
    assert x.max() <= 1.0
    z = philox.normal(3, 1, 200_000).astype(np.float64)
    # Five standard errors of a mean and of a variance over n draws: 5/sqrt(n), 5*sqrt(2/n).
    assert abs(z.mean()) < 5 / np.sqrt(z.size)
    assert abs(z.var() - 1) < 5 * np.sqrt(2 / z.size)


def test_dropout_scale() -> None:
    assert philox.dropout_scale(0.1) == np.float32(1.1111111640930176)
    assert philox.dropout_scale(0.0) == 1.0


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: philox.words(-1, 0, 0, 1), "seed"),
        (lambda: philox.words(2**64, 0, 0, 1), "seed"),
        (lambda: philox.words(0, 2**32, 0, 1), "stream"),
        (lambda: philox.words(0, 0, 2**64, 1), "blocks"),
        (lambda: philox.uniform(0, 0, 1, offset=-1), "offset"),
        (lambda: philox.normal(0, 0, -1), "count"),
        (lambda: philox.keep_mask(0, 0, 1, 1.0), "p"),
        (lambda: philox.keep_mask(0, 0, 1, 0.99999999), "p"),
        (lambda: philox.keep_mask(0, 0, 1, float("nan")), "p"),
    ],
)
def test_refusals_name_the_argument(call, name: str) -> None:
    with pytest.raises(UsageError, match=name):
        call()


def test_bits_of_many_normals() -> None:
    """A regression pin: the values were checked against the golden draws when it was written."""
    digest = hashlib.sha256(philox.normal(7, 0, 100_000).astype("<f4").tobytes()).hexdigest()
    assert digest == "77ac93257cbb7ddd8bf60562ddda05fdabaeb7900bce0a81857f9a659f539951"


def test_ten_million_uniforms_take_seconds() -> None:
    start = time.perf_counter()
    philox.uniform(0, 0, 10_000_000)
    # Measured at 0.15 s; the bound only catches a fall back to unchunked or scalar code on a busy machine.
    assert time.perf_counter() - start < 5.0
