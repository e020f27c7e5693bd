"""attention: causal grouped-query attention over a whole sequence (spec section 3).

Shapes: B batch, L length, H query heads, KV key/value heads, E head size, G = H/KV query heads a key/value head,
X = B*KV, R = rows of one block.

Inside, each (batch, key/value head) is one batch entry of every product, and the G query heads of a token are G
consecutive rows: row t*G + g. The forward pass takes 64 tokens of query rows at a time and only the keys they may see.
The backward pass takes 64 keys at a time and only the rows that see them, so that each block of d_k and d_v is one
product; only d_q is summed over blocks. Nothing of size L x L is kept: the weights come back from the log-sum-exp.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.errors import DtypeError, ShapeError
from trainc.ir.builder import emit
from trainc.ir.ops.masks import MASKED, causal
from trainc.ir.primitives import (
    barrier,
    concat,
    elementwise,
    fill,
    map_,
    map_many,
    matmul,
    reduce_max,
    reduce_sum,
    reshape,
    slice_axis,
)
from trainc.ir.registry import Call, OpDef, register
from trainc.ir.scalar import Scalar, exp, log, select
from trainc.ir.tensor import Aval, Tensor

Array = npt.NDArray[Any]

BLOCK_TOKENS = 64
"""Tokens of a block; a multiple of it when the sequence would have more than MAX_BLOCKS."""

MAX_BLOCKS = 16
"""More blocks save little work (1/32 is left to save) and make programs that are slow to compile."""


def check_heads(q: Aval, k: Aval, v: Aval, *, head_axis: int) -> None:
    """Check what queries, keys and values must share, whatever their layout.

    Args:
        q: Queries (B, length, H, E).
        k: Keys of rank 4, head size last.
        v: Values, of the keys' shape.
        head_axis: Axis of the key/value heads in k and v.

    Raises:
        ShapeError, DtypeError: They do not fit.
    """
    if not len(q.shape) == len(k.shape) == 4:
        raise ShapeError(f"expected q, k and v of rank 4, got q of rank {len(q.shape)} and k of rank {len(k.shape)}")
    if k.shape != v.shape:
        raise ShapeError(f"expected k and v of one shape, got {k.shape} and {v.shape}")
    if not q.dtype == k.dtype == v.dtype or q.dtype[0] not in "fb":
        raise DtypeError(f"expected q, k and v of one float dtype, got {q.dtype}, {k.dtype} and {v.dtype}")
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ShapeError(f"expected q and k to share batch and head size, got {q.shape} and {k.shape}")
    if q.shape[2] % k.shape[head_axis]:
        raise ShapeError(f"expected query heads to be a multiple of the {k.shape[head_axis]} of k, got {q.shape[2]}")


def _infer(q: Aval, k: Aval, v: Aval) -> list[Aval]:
    check_heads(q, k, v, head_axis=2)
    if q.shape[1] != k.shape[1]:
        raise ShapeError(f"expected q and k of one length, got {q.shape[1]} and {k.shape[1]}")
    return [q, Aval(q.shape[:3], q.dtype)]


def _reference(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    batch, length, heads, size = q.shape
    group = heads // k.shape[2]
    out, lse = np.empty_like(q), np.empty(q.shape[:3], q.dtype)
    for b, t, h in np.ndindex(batch, length, heads):
        scores = k[b, : t + 1, h // group] @ q[b, t, h] / np.sqrt(q.dtype.type(size))
        weights = np.exp(scores - scores.max())
        out[b, t, h] = weights @ v[b, : t + 1, h // group] / weights.sum()
        lse[b, t, h] = scores.max() + np.log(weights.sum())
    return out, lse


def _block_tokens(length: int) -> int:
    return BLOCK_TOKENS * -(-length // (BLOCK_TOKENS * MAX_BLOCKS))


def _query_rows(q: Tensor, kv_heads: int, scale: float = 1.0) -> Tensor:
    """Copy (B, L, H, E), times a factor, to (X, L*G, E)."""
    batch, length, heads, size = q.shape
    group = heads // kv_heads
    grouped = reshape(barrier(q), (batch, length, kv_heads, group, size))
    copied = map_("blkge,->bklge", lambda e, factor: e * factor, grouped, fill(scale, (), q.dtype))
    return barrier(reshape(copied, (batch * kv_heads, length * group, size)))


def _key_rows(k: Tensor, *, transposed: bool) -> Tensor:
    """Copy (B, L, KV, E) to (X, L, E), or to (X, E, L) so that no product reads it transposed."""
    copied = map_("blke->bkel" if transposed else "blke->bkle", lambda e: e, barrier(k))
    return barrier(reshape(copied, (k.shape[0] * k.shape[2], *copied.shape[2:])))


def _token_rows(parts: Sequence[Tensor], batch: int, kv_heads: int, group: int) -> Tensor:
    """Join blocks of rows (X, R*G, E) and copy them to (B, L, H, E).

    Blocks of one size are joined along a new first axis, where each is one contiguous piece.
    """
    joined = []
    for rows in dict.fromkeys(part.shape[1] for part in parts):
        blocks = [reshape(part, (1, *part.shape)) for part in parts if part.shape[1] == rows]
        count, tokens, size = len(blocks), rows // group, parts[0].shape[2]
        stacked = reshape(barrier(concat(blocks, axis=0)), (count, batch, kv_heads, tokens, group, size))
        copied = map_("nbktge->bntkge", lambda e: e, stacked)
        joined.append(reshape(copied, (batch, count * tokens, kv_heads * group, size)))
    return barrier(concat(joined, axis=1))


def _decompose(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    batch, length, heads, size = q.shape
    kv_heads = k.shape[2]
    group = heads // kv_heads
    queries, values = _query_rows(q, kv_heads, size**-0.5), _key_rows(v, transposed=False)
    keys = _key_rows(k, transposed=True)
    outs, lses = [], []
    step = _block_tokens(length)
    for start in range(0, length, step):
        end = min(start + step, length)
        block = slice_axis(queries, 1, start * group, (end - start) * group)
        out, lse = _rows(block, slice_axis(keys, 2, 0, end), slice_axis(values, 1, 0, end), start, group)
        outs.append(out)
        lses.append(reshape(lse, (*lse.shape, 1)))
    lse_rows = _token_rows(lses, batch, kv_heads, group)
    return _token_rows(outs, batch, kv_heads, group), reshape(lse_rows, (batch, length, heads))


def _rows(queries: Tensor, keys: Tensor, values: Tensor, start: int, group: int) -> tuple[Tensor, Tensor]:
    """Attend from one block of query rows, the first of token `start`; keys (X, E, J) and values (X, J, E)."""

    def mask(score: Scalar) -> Scalar:
        return select(causal(1, 2, offset=start, group=group), score, MASKED)

    scores = map_("xij->xij", mask, matmul("xie,xej->xij", queries, keys))
    top = reduce_max("xij->xi", scores)
    weights = map_("xij,xi->xij", lambda s, m: exp(s - m), scores, top)
    total = reduce_sum("xij->xi", weights)
    out = map_("xie,xi->xie", lambda a, n: a / n, matmul("xij,xje->xie", weights, values), total)
    return out, map_("xi,xi->xi", lambda m, n: m + log(n), top, total)


def _backward(call: Call, d_results: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    d_out, d_lse = d_results
    out, lse = call.results
    if d_out is None:
        d_out = fill(0.0, out.shape, out.dtype)
    return emit(ATTENTION_GRAD, [*call.operands, out, lse, d_out, *([d_lse] if d_lse is not None else [])])


ATTENTION = register(
    OpDef("attention", ("q", "k", "v"), _infer, reference=_reference, decompose=_decompose, backward=_backward)
)


def attention(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return causal attention, softmax(q k^T / sqrt(E)) v with each query seeing its own and earlier tokens.

    Args:
        q: Queries (B, L, H, E), positions already encoded.
        k: Keys (B, L, KV, E); query head h reads key/value head h // (H/KV).
        v: Values (B, L, KV, E).

    Returns:
        The output (B, L, H, E), and the log-sum-exp of each row's scores (B, L, H), which the backward pass keeps.

    Raises:
        ShapeError, DtypeError: The operands do not fit.
    """
    out, lse = emit(ATTENTION, [q, k, v])
    return out, lse


def _infer_grad(q: Aval, k: Aval, v: Aval, out: Aval, lse: Aval, d_out: Aval, *d_lse: Aval) -> list[Aval]:
    results = _infer(q, k, v)
    if [out, lse] != results or d_out != out or any(d != lse for d in d_lse) or len(d_lse) > 1:
        given = ", ".join(map(str, (out, lse, d_out, *d_lse)))
        raise ShapeError(f"expected out and d_out {results[0]}, lse and d_lse {results[1]}; got {given}")
    return [q, k, v]


def _decompose_grad(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, d_out: Tensor, *d_lse: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    batch, length, heads, size = q.shape
    kv_heads = k.shape[2]
    group = heads // kv_heads
    queries, d_outs = _query_rows(q, kv_heads, size**-0.5), _query_rows(d_out, kv_heads)
    keys, keys_t = _key_rows(k, transposed=False), _key_rows(k, transposed=True)
    values_t = _key_rows(v, transposed=True)
    row_lse, row_dot = _row_statistics(lse, _row_dots(out, d_out), d_lse, kv_heads)
    d_queries, d_keys, d_values = [], [], []
    step = _block_tokens(length)
    for start in range(0, length, step):
        columns = min(step, length - start)
        rows = [slice_axis(x, 1, start * group, (length - start) * group) for x in (queries, d_outs, row_lse, row_dot)]
        scores = matmul("xie,xej->xij", rows[0], slice_axis(keys_t, 2, start, columns))
        d_weights = matmul("xie,xej->xij", rows[1], slice_axis(values_t, 2, start, columns))
        weights, d_scores = _score_gradients(scores, d_weights, rows[2], rows[3], group)
        d_values.append(matmul("xij,xie->xje", weights, rows[1]))
        d_keys.append(matmul("xij,xie->xje", d_scores, rows[0]))
        d_queries.append(matmul("xij,xje->xie", d_scores, slice_axis(keys, 1, start, columns)))
    d_q = _token_rows(_sum_blocks(d_queries, step * group, size**-0.5), batch, kv_heads, group)
    return d_q, _token_rows(d_keys, batch, kv_heads, 1), _token_rows(d_values, batch, kv_heads, 1)


def _row_dots(out: Tensor, d_out: Tensor) -> Tensor:
    return reduce_sum("blhe->blh", elementwise(lambda o, d: o * d, out, d_out))


def _row_statistics(lse: Tensor, dots: Tensor, d_lse: Sequence[Tensor], kv_heads: int) -> tuple[Tensor, Tensor]:
    """Copy (B, L, H) log-sum-exp, and row dots less the cotangent of the log-sum-exp, to (X, L*G)."""
    batch, length, heads = lse.shape
    grouped = [reshape(x, (batch, length, kv_heads, heads // kv_heads)) for x in (lse, barrier(dots), *d_lse)]
    copied = map_many(
        ",".join(["blkg"] * len(grouped)) + "->bklg", lambda s, d, *more: (s, d - more[0] if more else d), *grouped
    )
    row_lse, row_dot = (barrier(reshape(x, (batch * kv_heads, length * heads // kv_heads))) for x in copied)
    return row_lse, row_dot


def _score_gradients(scores: Tensor, d_weights: Tensor, lse: Tensor, dots: Tensor, group: int) -> tuple[Tensor, Tensor]:
    """Return the weights and the gradient of the scores, of rows and keys that begin at one token; all (X, I, J)."""

    def gradients(score: Scalar, d_weight: Scalar, row_lse: Scalar, row_dot: Scalar) -> tuple[Scalar, Scalar]:
        weight = exp(select(causal(1, 2, group=group), score - row_lse, MASKED))
        return weight, weight * (d_weight - row_dot)

    weights, d_scores = map_many("xij,xij,xi,xi->xij", gradients, scores, d_weights, lse, dots)
    return weights, d_scores


def _sum_blocks(parts: Sequence[Tensor], rows: int, scale: float) -> list[Tensor]:
    """Add tensors (X, ., E), part c of which begins at row c*rows, block by block and in ascending order of c."""
    blocks = []
    factor = fill(scale, (), parts[0].dtype)
    for position in range(len(parts)):
        size = min(rows, parts[position].shape[1])
        pieces = [slice_axis(part, 1, (position - c) * rows, size) for c, part in enumerate(parts[: position + 1])]
        spec = "xie," * len(pieces) + "->xie"
        blocks.append(map_(spec, lambda *terms: sum(terms[1:-1], terms[0]) * terms[-1], *pieces, factor))
    return blocks


ATTENTION_GRAD = register(
    OpDef("attention_grad", ("q", "k", "v", "out", "lse", "d_out", "d_lse*"), _infer_grad, decompose=_decompose_grad)
)
