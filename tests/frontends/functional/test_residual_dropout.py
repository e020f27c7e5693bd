"""residual_dropout and its gradient: the bits of two roundings under the generator's mask, refusals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainc.core import philox
from trainc.core.errors import NotFiniteError
from trainc.frontends import draws
from trainc.frontends.functional.residual_dropout import residual_dropout, residual_dropout_backward
from trainc.frontends.generator import Generator

X = np.ones((2, 3), np.float32)


def branch(values, p, seed, stream, offset):
    keep = philox.keep_mask(seed, stream, values.size, p, offset).reshape(values.shape)
    return np.where(keep, values * philox.dropout_scale(p), np.float32(0.0))


@settings(deadline=None, max_examples=60)
@given(
    shape=st.lists(st.integers(1, 12), max_size=3).map(tuple),
    p=st.sampled_from([0.0, 0.1, 0.5, 0.999]),
    seed=st.integers(0, 2**64 - 1),
    stream=st.integers(0, 2**32 - 1),
    offset=st.integers(0, 2**62),
    compiled=st.booleans(),
)
def test_two_roundings(shape, p, seed, stream, offset, compiled):
    rng = np.random.default_rng(0)
    values, residual = (rng.standard_normal(shape).astype(np.float32).reshape(shape) for _ in range(2))
    given_ = {"p": p, "seed": seed, "stream": stream, "offset": offset}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draws, "COMPILED_ELEMENTS", 1 if compiled else 2**62)
        out = residual_dropout(values, residual, **given_)
        d_values, d_residual = residual_dropout_backward(residual, **given_)
    assert out.shape == d_values.shape == d_residual.shape == shape
    assert out.tobytes() == (residual + branch(values, **given_)).tobytes()
    assert d_values.tobytes() == branch(residual, **given_).tobytes()
    assert d_residual.tobytes() == residual.tobytes()
    assert not np.shares_memory(d_residual, residual)


def test_defaults_and_the_generator_agree():
    values = np.random.default_rng(1).standard_normal((5, 9)).astype(np.float32)
    zeros = np.zeros_like(values)
    dropped, _ = Generator(0).dropout(values, 0.5, stream=0)
    assert residual_dropout(values, zeros).tobytes() == (zeros + dropped).tobytes()


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: residual_dropout(X, X, p=1.0), ValueError, "p must be a number"),
        (lambda: residual_dropout(X, X, p=-0.5), ValueError, "p must be a number"),
        (lambda: residual_dropout(X, X, p=float("nan")), ValueError, "p must be a number"),
        (lambda: residual_dropout(X, X, p="half"), ValueError, "p must be a number"),
        (lambda: residual_dropout(X, X, seed=-1), ValueError, "seed"),
        (lambda: residual_dropout(X, X, seed=2**64), ValueError, "seed"),
        (lambda: residual_dropout(X, X, seed=1.5), ValueError, "seed"),
        (lambda: residual_dropout(X, X, stream=2**32), ValueError, "stream"),
        (lambda: residual_dropout(X, X, offset=-1), ValueError, "offset"),
        (lambda: residual_dropout(X, X, offset=2**64), ValueError, r"offset must be in \[0, 2\*\*64\)"),
        (lambda: residual_dropout_backward(X, offset=2**64), ValueError, r"offset must be in \[0, 2\*\*64\)"),
        (lambda: residual_dropout(X, X[:1]), ValueError, "residual must have the shape of values"),
        (lambda: residual_dropout(X.T, X.T), ValueError, "values must be C-contiguous"),
        (lambda: residual_dropout(X, X * np.float32(np.nan)), NotFiniteError, r"residual\[0, 0\] is nan"),
        (lambda: residual_dropout(X / np.float32(0), X), ValueError, r"values\[0, 0\] is inf"),
        (lambda: residual_dropout(X.astype(np.float64), X), TypeError, "values must be a float32 array"),
        (lambda: residual_dropout(X, X, 0.5), TypeError, "positional"),
        (lambda: residual_dropout(X, X, numeric_mode="fast"), TypeError, "numeric_mode"),
        (lambda: residual_dropout_backward(X.astype(np.float16)), TypeError, "gradient must be a float32 array"),
        (lambda: residual_dropout_backward(X, p=1.0), ValueError, "p must be a number"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_refusals_name_the_argument(call, error, text):
    with pytest.raises(error, match=text):
        call()
