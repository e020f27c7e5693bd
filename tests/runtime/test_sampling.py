"""Choosing tokens, and the decoder that feeds them."""

import numpy as np
import pytest

from tests.runtime import toy
from trainc.core.errors import NumericsError, ShapeError, UsageError
from trainc.runtime.decode import Decoder, generate
from trainc.runtime.sampling import SamplingOptions, find_stop, next_token


def logits(*probabilities: float) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(np.array(probabilities, np.float32))


def shares(row: np.ndarray, draws: int = 1500, **options) -> np.ndarray:
    chosen = [next_token(row, SamplingOptions(**options), 0, index) for index in range(draws)]
    return np.bincount(chosen, minlength=row.size) / draws


def test_temperature_0_takes_the_largest_and_the_lowest_of_equals():
    options = SamplingOptions(temperature=0.0)
    assert next_token(logits(0.1, 0.4, 0.4, 0.1), options, 0, 0) == 1
    assert next_token(np.array([-np.inf, 3, np.inf, 3], np.float32), options, 0, 0) == 2


# Tolerances: four standard deviations of a share over 1,500 draws, at most 4 * sqrt(0.25 / 1500) = 0.052.
def test_draws_follow_the_probabilities():
    np.testing.assert_allclose(shares(logits(0.5, 0.2, 0.3, 0.0)), [0.5, 0.2, 0.3, 0.0], atol=0.052)


def test_temperature_sharpens():
    expected = np.array([0.5, 0.2, 0.3]) ** 2
    np.testing.assert_allclose(shares(logits(0.5, 0.2, 0.3), temperature=0.5), expected / expected.sum(), atol=0.052)


@pytest.mark.parametrize("temperature", [1e-310, 1e-300, 1e-6])
@pytest.mark.filterwarnings("error")
def test_the_smallest_temperatures_take_the_largest(temperature):
    assert shares(logits(0.3, 0.5, 0.2), draws=20, temperature=temperature)[1] == 1.0
    assert shares(np.array([1, np.inf, -np.inf], np.float32), draws=20, temperature=temperature)[1] == 1.0


def test_top_k_and_top_p():
    row = logits(0.1, 0.4, 0.2, 0.3)
    np.testing.assert_allclose(shares(row, top_k=2), [0, 4 / 7, 0, 3 / 7], atol=0.052)
    np.testing.assert_allclose(shares(row, top_p=0.75), [0, 4 / 9, 2 / 9, 3 / 9], atol=0.052)
    np.testing.assert_allclose(shares(row, top_p=0.65), [0, 4 / 7, 0, 3 / 7], atol=0.052)
    assert shares(row, draws=200, top_p=1e-9)[1] == 1.0
    assert shares(row, draws=200, top_k=1)[1] == 1.0
    np.testing.assert_allclose(shares(row, top_k=100), [0.1, 0.4, 0.2, 0.3], atol=0.052)
    np.testing.assert_allclose(shares(logits(0.25, 0.25, 0.25, 0.25), top_k=2), [0.5, 0.5, 0, 0], atol=0.052)


def test_draws_are_a_pure_function_of_seed_stream_and_index():
    row = logits(*np.full(32, 1 / 32))
    runs = [[next_token(row, SamplingOptions(seed=s), t, i) for i in range(50)] for s, t in ((1, 0), (1, 1), (2, 0))]
    again = [next_token(row, SamplingOptions(seed=1), 0, i) for i in reversed(range(50))]
    assert again[::-1] == runs[0]
    assert runs[0] != runs[1] != runs[2] != runs[0]


@pytest.mark.parametrize("bad", [np.array([1, np.nan], np.float32), np.full(3, -np.inf, np.float32)])
def test_logits_that_are_no_use(bad):
    with pytest.raises(NumericsError, match="logits"):
        next_token(bad, SamplingOptions(), 0, 0)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_k": 0}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"seed": -1}, "seed"),
        ({"stream": 2**32}, "stream"),
        ({"stop": (b"",)}, "stop string"),
    ],
)
def test_options_are_checked(options, text):
    with pytest.raises(UsageError, match=text):
        SamplingOptions(**options)


def test_find_stop():
    assert find_stop(b"hello world", [b"wor", b"lo"]) == 3
    assert find_stop(b"hello", [b"x"]) is None
    assert find_stop(b"hello", []) is None


@pytest.fixture
def params(program):
    params = program.new_state("params")
    params.flat[:] = np.random.default_rng(1).normal(size=params.flat.size)
    return params


@pytest.fixture
def decoder(program, params):
    return Decoder(program, params)


def expected(params, ids) -> np.ndarray:
    """The toy's logits: the sum of W's rows of all tokens."""
    return params.views()["W"][ids].sum(1)


@pytest.mark.parametrize("parts", [[1], [4], [3], [5], [9, 1, 1, 2, 4, 1], [24], [1] * 10, [23, 1]])
def test_feeding_in_any_parts_is_the_same(decoder, params, parts):
    ids = np.random.default_rng(2).integers(0, toy.VOCAB, (2, sum(parts))).astype(np.int32)
    start = 0
    for part in parts:
        out = decoder.feed(ids[:, start : start + part])
        start += part
        assert decoder.position == start
        np.testing.assert_allclose(out, expected(params, ids[:, :start]), atol=1e-5)  # float32 sums of 24 normals


def test_reset_forgets(decoder, params):
    ids = np.ones((2, 7), np.int32)
    first = decoder.feed(ids)
    decoder.reset()
    np.testing.assert_array_equal(decoder.feed(ids), first)


def test_the_capacity_is_kept(decoder, params):
    ids = np.ones((2, 20), np.int32)
    decoder.feed(ids)
    with pytest.raises(UsageError, match="24 tokens a sequence; 20 were fed and 5 more"):
        decoder.feed(ids[:, :5])
    assert decoder.position == 20
    np.testing.assert_allclose(decoder.feed(ids[:, :4]), expected(params, np.ones((2, 24), int)), atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 3), (3, 3), (2, 0), (2,)])
def test_ids_of_another_shape(decoder, shape):
    with pytest.raises(ShapeError, match="ids must have shape"):
        decoder.feed(np.zeros(shape, np.int32))


@pytest.mark.parametrize("bad", [-1, toy.VOCAB])
def test_ids_outside_the_vocabulary(decoder, bad):
    with pytest.raises(UsageError, match=f"0..31, got {bad}"):
        decoder.feed(np.array([[0, 1], [2, bad]], np.int32))


def test_greedy_text_is_the_argmax_of_the_logits(decoder, params):
    result = generate(decoder, [3, 7], 10, SamplingOptions(temperature=0.0))
    ids = [3, 7]
    for _ in range(10):
        ids.append(int(np.argmax(expected(params, np.array([ids])))))
    assert [row.tokens for row in result] == [ids[2:]] * 2
    assert {row.finish_reason for row in result} == {"length"}


def test_sampled_text_repeats_and_rows_differ(decoder):
    options = SamplingOptions(temperature=8.0, seed=5)
    first, again = (generate(decoder, [3], 20, options) for _ in range(2))
    assert first == again
    assert first[0].tokens != first[1].tokens
    shifted = generate(decoder, [3], 20, SamplingOptions(temperature=8.0, seed=5, stream=1))
    assert shifted[0].tokens == first[1].tokens


def test_stop_strings_end_a_row(decoder):
    options = SamplingOptions(temperature=8.0, seed=5)
    first, second = (bytes(row.tokens) for row in generate(decoder, [3], 20, options))
    stop = first[6:9]
    assert stop not in second
    seen = []
    options = SamplingOptions(temperature=8.0, seed=5, stop=(stop, b"\xff\xfe"))
    one, two = generate(decoder, [3], 20, options, lambda row, token: seen.append((row, token)))
    place = first.index(stop)
    assert (bytes(one.tokens), one.finish_reason) == (first[:place], "stop")
    assert (bytes(two.tokens), two.finish_reason) == (second, "length")
    assert [token for row, token in seen if row == 0] == list(first[: place + 3])
    assert [token for row, token in seen if row == 1] == list(second)


@pytest.mark.parametrize(
    ("prompt", "tokens", "text"),
    [([], 3, "prompt token"), ([1], 0, "max_tokens of at least 1"), ([1] * 20, 5, "prompt has 20, 5 new")],
)
def test_what_cannot_be_generated(decoder, prompt, tokens, text):
    with pytest.raises(UsageError, match=text):
        generate(decoder, prompt, tokens, SamplingOptions())
