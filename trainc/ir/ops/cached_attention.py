"""cached_attention and cache_write: attention over stored keys and values, for prefill and decode (spec section 3).

Shapes: B batch, T new tokens, M cache rows, H query heads, KV key/value heads, E head size, G = H/KV, X = B*KV.
Both are forward only. Cache rows that no query sees must be finite, because their weight of zero multiplies them.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.errors import DtypeError, ShapeError
from trainc.ir.builder import emit
from trainc.ir.ops.attention import check_heads
from trainc.ir.ops.masks import MASKED, causal, span
from trainc.ir.primitives import barrier, fill, gather, map_, matmul, put_rows, reduce_max, reduce_sum, reshape
from trainc.ir.registry import OpDef, register
from trainc.ir.scalar import Scalar, exp, index, select
from trainc.ir.tensor import Aval, Tensor

Array = npt.NDArray[Any]


def _check_i32_scalar(name: str, aval: Aval) -> None:
    if aval.shape != ():
        raise ShapeError(f"expected {name} of shape (), got {aval.shape}")
    if aval.dtype != "i32":
        raise DtypeError(f"expected {name} of dtype i32, got {aval.dtype}")


def _infer_attention(q: Aval, k_cache: Aval, v_cache: Aval, position: Aval) -> list[Aval]:
    check_heads(q, k_cache, v_cache, head_axis=1)
    _check_i32_scalar("position", position)
    return [q]


def _attention_reference(q: Array, k_cache: Array, v_cache: Array, position: Array) -> Array:
    batch, tokens, heads, size = q.shape
    group = heads // k_cache.shape[1]
    out = np.empty_like(q)
    for b, t, h in np.ndindex(batch, tokens, heads):
        keys = k_cache[b, h // group, : int(position) + t + 1]
        scores = keys @ q[b, t, h] / np.sqrt(q.dtype.type(size))
        weights = np.exp(scores - scores.max())
        out[b, t, h] = weights @ v_cache[b, h // group, : len(keys)] / weights.sum()
    return out


def _decompose_attention(q: Tensor, k_cache: Tensor, v_cache: Tensor, position: Tensor) -> Tensor:
    batch, tokens, heads, size = q.shape
    kv_heads, capacity = k_cache.shape[1:3]
    group = heads // kv_heads
    keys, values = (reshape(cache, (batch * kv_heads, capacity, size)) for cache in (k_cache, v_cache))
    grouped = reshape(barrier(q), (batch, tokens, kv_heads, group, size))
    copied = map_("btkge,->bketg", lambda e, scale: e * scale, grouped, fill(size**-0.5, (), q.dtype))
    queries = barrier(reshape(copied, (batch * kv_heads, size, tokens * group)))
    # Without its dimension a single query makes both products ones of a matrix and a vector, which are tiled as such.
    i = "" if tokens * group == 1 else "i"
    queries = queries if i else reshape(queries, (batch * kv_heads, size))

    def mask(score: Scalar, offset: Scalar) -> Scalar:
        seen = causal(2, 1, offset=offset, group=group) if i else span(1, offset + 1)
        return select(seen, score, MASKED)

    # Keys stand on the left, so that neither cache is ever copied into another layout.
    scores = map_(f"xj{i},->xj{i}", mask, matmul(f"xje,xe{i}->xj{i}", keys, queries), position)
    top = reduce_max(f"xj{i}->x{i}", scores)
    # The barrier, because a product would take each exponential again for every vector of values.
    weights = barrier(map_(f"xj{i},x{i}->xj{i}", lambda s, m: exp(s - m), scores, top))
    total = reduce_sum(f"xj{i}->x{i}", weights)
    out = map_(f"x{i}e,x{i}->x{i}e", lambda a, n: a / n, matmul(f"xj{i},xje->x{i}e", weights, values), total)
    rows = barrier(reshape(out, (batch, kv_heads, tokens, group, size)))
    return barrier(reshape(map_("bktge->btkge", lambda e: e, rows), q.shape))


CACHED_ATTENTION = register(
    OpDef(
        "cached_attention",
        ("q", "k_cache", "v_cache", "position"),
        _infer_attention,
        reference=_attention_reference,
        decompose=_decompose_attention,
    )
)


def cached_attention(q: Tensor, k_cache: Tensor, v_cache: Tensor, position: Tensor) -> Tensor:
    """Return attention of new tokens to cache rows; query t sees rows 0 to position + t.

    Args:
        q: Queries (B, T, H, E) of positions position, position + 1, ...
        k_cache: Keys (B, KV, M, E), those of the new tokens included; query head h reads head h // (H/KV).
        v_cache: Values (B, KV, M, E).
        position: i32 (), at least 0; the caller checks that position + T <= M before anything runs.

    Returns:
        (B, T, H, E).

    Raises:
        ShapeError, DtypeError: The operands do not fit.
    """
    return emit(CACHED_ATTENTION, [q, k_cache, v_cache, position])[0]


def _infer_write(cache: Aval, rows: Aval, position: Aval, length: Aval) -> list[Aval]:
    if not len(cache.shape) == len(rows.shape) == 4:
        raise ShapeError(f"expected cache (B, KV, M, E) and rows (B, T, KV, E), got {cache.shape} and {rows.shape}")
    batch, tokens, kv_heads, size = rows.shape
    if (batch, kv_heads, size) != (cache.shape[0], cache.shape[1], cache.shape[3]) or tokens > cache.shape[2]:
        raise ShapeError(
            f"expected rows (B, T, KV, E), T <= {cache.shape[2]}, for a cache (B, KV, M, E), "
            f"got {rows.shape} for {cache.shape}"
        )
    if cache.dtype != rows.dtype:
        raise DtypeError(f"expected cache and rows of one dtype, got {cache.dtype} and {rows.dtype}")
    _check_i32_scalar("position", position)
    _check_i32_scalar("length", length)
    return [cache]


def _write_reference(cache: Array, rows: Array, position: Array, length: Array) -> Array:
    new = cache.copy()
    for t in range(int(length)):
        new[:, :, int(position) + t] = rows[:, t]
    return new


def _decompose_write(cache: Tensor, rows: Tensor, position: Tensor, length: Tensor) -> Tensor:
    capacity, tokens = cache.shape[2], rows.shape[1]
    if tokens == 1:  # then length is 1, too, and one row is put in where the cache lies
        return put_rows(cache, barrier(map_("btke->bkte", lambda row: row, rows)), position, axis=2)

    def source(start: Scalar, count: Scalar) -> Scalar:
        return select(span(0, count, start=start), index(0) - start, 0)

    def choose(new: Scalar, old: Scalar, start: Scalar, count: Scalar) -> Scalar:
        return select(span(2, count, start=start), new, old)

    ids = map_(",->m", source, position, length, sizes={"m": capacity})
    spread = gather(rows, ids, axis=1)
    return map_("bmke,bkme,,->bkme", choose, spread, cache, position, length)


CACHE_WRITE = register(
    OpDef(
        "cache_write",
        ("cache", "rows", "position", "length"),
        _infer_write,
        reference=_write_reference,
        decompose=_decompose_write,
    )
)


def cache_write(cache: Tensor, rows: Tensor, position: Tensor, length: Tensor) -> Tensor:
    """Return a cache with new rows in it, all others unchanged.

    Args:
        cache: Keys or values (B, KV, M, E).
        rows: New ones (B, T, KV, E), T <= M; those from `length` on are padding and are not written.
        position: i32 (), at least 0: where row 0 goes.
        length: i32 (), 0 to T, of which 1 is taken for 1 if T is; the caller checks that position + length <= M before
            anything runs.

    Returns:
        (B, KV, M, E).

    Raises:
        ShapeError, DtypeError: The operands do not fit.
    """
    return emit(CACHE_WRITE, [cache, rows, position, length])[0]
