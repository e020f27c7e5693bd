"""The layer and loss functions against torch on the CPU, over random shapes and options."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from trainc.frontends.functional.cross_entropy import cross_entropy
from trainc.frontends.functional.embedding import embedding_backward, embedding_forward
from trainc.frontends.functional.linear import linear_backward, linear_forward
from trainc.frontends.functional.lm_head import chunked_lm_head_loss
from trainc.frontends.functional.rms_norm import rms_norm_backward, rms_norm_forward

pytestmark = pytest.mark.oracle

EPS = 1e-5

# Both sides compute in float32, torch in other orders. n terms of a sum of n products differ by about
# sqrt(n) * 2^-24 of the largest partial sum; n is at most 200 here, and a softmax or a norm adds ten roundings more.
RELATIVE = 3e-6


def close(got, wanted):
    wanted = wanted.detach().numpy()
    np.testing.assert_allclose(got, wanted, rtol=0, atol=RELATIVE * max(np.abs(wanted).max(), 1e-30))


def normal(rng, *shape, scale=1.0):
    return (scale * rng.standard_normal(shape)).astype(np.float32)


def leaf(array):
    return torch.from_numpy(array).requires_grad_(True)


rows, seeds = st.integers(1, 200), st.integers(0, 999)


@settings(max_examples=80, deadline=None)
@given(
    rows=rows,
    seed=seeds,
    ignore_index=st.sampled_from([-100, -7, 2]),
    share=st.floats(0.0, 0.9),
    smoothing=st.sampled_from([0.0, 0.1, 0.7]),
    reduction=st.sampled_from(["mean", "sum", "none"]),
    scale=st.sampled_from([0.1, 3.0, 1e3]),
)
def test_cross_entropy(rows, seed, ignore_index, share, smoothing, reduction, scale):
    rng = np.random.default_rng(seed)
    logits, targets = normal(rng, rows, 7, scale=scale), rng.integers(0, 7, rows)
    targets[rng.random(rows) < share] = ignore_index
    targets[0] = 1
    options = {"ignore_index": ignore_index, "reduction": reduction, "label_smoothing": smoothing}
    peer = leaf(logits)
    wanted = functional.cross_entropy(peer, torch.from_numpy(targets), **options)
    if reduction == "none":
        close(cross_entropy(logits, targets, **options), wanted)
        return
    loss, d_logits = cross_entropy(logits, targets, return_grad=True, **options)
    wanted.backward()
    close(loss, wanted)
    close(d_logits, peer.grad)


@settings(max_examples=30, deadline=None)
@given(rows=rows, width=st.sampled_from([6, 65]), seed=seeds)
def test_rms_norm(rows, width, seed):
    rng = np.random.default_rng(seed)
    x, weight, dy = normal(rng, rows, width), normal(rng, width), normal(rng, rows, width)
    peers = leaf(x), leaf(weight)
    wanted = functional.rms_norm(peers[0], (width,), peers[1], EPS)
    wanted.backward(torch.from_numpy(dy))
    close(rms_norm_forward(x, weight, EPS), wanted)
    for got, peer in zip(rms_norm_backward(dy, x, weight, EPS), peers, strict=True):
        close(got, peer.grad)


@settings(max_examples=30, deadline=None)
@given(rows=rows, sizes=st.sampled_from([(6, 3), (33, 17)]), seed=seeds)
def test_linear(rows, sizes, seed):
    rng = np.random.default_rng(seed)
    a, weight, dc = normal(rng, rows, sizes[0]), normal(rng, *sizes[::-1]), normal(rng, rows, sizes[1])
    peers = leaf(a), leaf(weight)
    wanted = functional.linear(*peers)
    wanted.backward(torch.from_numpy(dc))
    close(linear_forward(a, weight), wanted)
    for got, peer in zip(linear_backward(dc, a, weight), peers, strict=True):
        close(got, peer.grad)


@settings(max_examples=30, deadline=None)
@given(rows=rows, seed=seeds)
def test_embedding(rows, seed):
    rng = np.random.default_rng(seed)
    weight, ids, dy = normal(rng, 5, 6), rng.integers(0, 5, rows), normal(rng, rows, 6)
    peer = leaf(weight)
    wanted = functional.embedding(torch.from_numpy(ids), peer)
    wanted.backward(torch.from_numpy(dy))
    np.testing.assert_array_equal(embedding_forward(weight, ids), wanted.detach().numpy())
    close(embedding_backward(dy, ids, 5), peer.grad)


@settings(max_examples=30, deadline=None)
@given(rows=rows, vocab=st.integers(2, 64), seed=seeds)
def test_lm_head(rows, vocab, seed):
    rng = np.random.default_rng(seed)
    hidden, weight, targets = normal(rng, rows, 8), normal(rng, vocab, 8), rng.integers(0, vocab, rows)
    peers = leaf(hidden), leaf(weight)
    wanted = functional.cross_entropy(functional.linear(*peers), torch.from_numpy(targets))
    wanted.backward()
    loss, *gradients = chunked_lm_head_loss(hidden, weight, targets, return_grad=True)
    close(loss, wanted)
    for got, peer in zip(gradients, peers, strict=True):
        close(got, peer.grad)


def test_tensors_are_taken_without_numpy():
    logits, targets = torch.randn(5, 7), torch.tensor([0, 6, 2, 2, 1])
    assert cross_entropy(logits, targets) == cross_entropy(logits.numpy(), targets.numpy())
    with pytest.raises(TypeError, match="logits"):
        cross_entropy(logits.bfloat16(), targets)
