"""Tile sizes of the matrix products on CPUs, as one rule over the four loop sizes.

The rule is measured, not derived: IREE 3.13, llvm-cpu on an AVX-512 machine with two cores, float32, without data
tiling. docs/performance.md has the figures. The compiler's own choice is close for products whose sizes are
multiples of its tiles and falls to a thirtieth of the speed for some that are not, because it masks every vector.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainc.ir.mlir import DYNAMIC

WIDEST = 64
"""Bytes of the widest vector registers there are, those of AVX-512."""


@dataclass(frozen=True)
class Tiles:
    """Tile sizes of one product, a number per loop in the order batch..., m, n, k; 0 leaves that loop alone.

    Attributes:
        distribution: Part of the result one workgroup computes.
        vector_parallel: Part of the result held in vector registers.
        vector_reduction: Steps of k that are unrolled together.
        cache_reduction: Steps of k after which a workgroup turns to its next rows and columns; none leaves k whole.
    """

    distribution: tuple[int, ...]
    vector_parallel: tuple[int, ...]
    vector_reduction: tuple[int, ...]
    cache_reduction: tuple[int, ...] = ()

    def in_loop_order(self, order: Sequence[int]) -> "Tiles":
        """Returns the same tiles for loops in another order.

        Args:
            order: For batch..., m, n, k in turn, the loop that each one is.
        """

        def place(sizes: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(size for _, size in sorted(zip(order, sizes, strict=True)))

        return replace(
            self,
            distribution=place(self.distribution),
            vector_parallel=place(self.vector_parallel),
            vector_reduction=place(self.vector_reduction),
            cache_reduction=place(self.cache_reduction) if self.cache_reduction else (),
        )

    def attribute(self) -> str:
        """Returns the MLIR text of the `compilation_info` attribute.

        Peeling splits what does not fill a vector into loops of its own, so the main loop stays free of masks; sizes
        that divide evenly have nothing to peel.
        """
        cached = f"cache_reduction = {list(self.cache_reduction)}, " if self.cache_reduction else ""
        return (
            "#iree_codegen.compilation_info<lowering_config = #iree_cpu.lowering_config<"
            f"distribution = {list(self.distribution)}, {cached}"
            f"vector_common_parallel = {list(self.vector_parallel)}, "
            f"vector_reduction = {list(self.vector_reduction)}>, "
            "translation_info = #iree_codegen.translation_info<"
            "pipeline = #iree_cpu.pipeline<DoubleTilingExpert>, {enable_loop_peeling}>>"
        )


@dataclass(frozen=True)
class _Vectors:
    """Vector tile of the result (rows, columns) and unrolled steps of k."""

    m: int
    n: int
    k: int


# Each row is the fastest choice measured for its kind of product, or as fast as any. Vector widths that are not a
# power of two (24, 48, 104) lose three quarters of the speed, even where they divide the size.
_VECTORS = {
    # Too few rows to reuse a loaded column block: the traffic of the right side decides, so read it widely.
    "few rows": _Vectors(m=4, n=32, k=8),
    # As fast as 32 columns, faster with two results, and well ahead on uneven sizes: less is left to peel.
    "general": _Vectors(m=8, n=16, k=4),
    # Twice the columns, so half as many walks down a right side whose rows are a memory page and more.
    "long rows": _Vectors(m=8, n=32, k=4),
    # Sixteen rows of a transposed left side are one cache line; eight would fetch each line twice, which costs a
    # twentieth where k is long.
    "transposed left": _Vectors(m=16, n=16, k=4),
    # Right sides small enough for the first-level cache: the fewest loads for each multiplication.
    "small tiles": _Vectors(m=4, n=64, k=4),
    # Short sums over long rows (states carried over chunks, scores of attention): stream along the rows.
    "streams": _Vectors(m=4, n=64, k=1),
}

_LANES = 16  # elements of a vector: a product with a vector keeps that many rows or steps of k together
_VECTOR_PART = 128  # results of such a product that one workgroup computes
_FEW_ROWS = 8
_SHORT_SUM = 64
_LONG_ROW = 1024  # columns of a memory page
_STEP = 64  # part of a long loop: two operand panels of 64 by 2048 steps fill 1 MB of second-level cache
_WHOLE = 144  # an uneven loop up to here stays whole: an uneven last part has a size unknown to the compiler
_TILE = 256  # a batched product up to here on each side is one piece of work
_MANY_TILES = 8  # so many pieces keep the cores busy; beyond that a workgroup takes several
_TILES_PER_GROUP = 8
_SHORT_SIDE = 128  # rows of a right side of which 64 columns fit into the first-level cache
_CACHED_STEPS = 256  # steps of k whose panels stay in the first-level cache while rows and columns pass
_LARGEST_VECTOR = 512  # registers; from there on the compiler refuses a vector
_FLOAT_BYTES = 4
_UNKNOWN = 4096  # what a size that each call chooses is taken for: a long loop of whole parts


def contraction_tiles(
    batch: tuple[int, ...], m: int, n: int, k: int, *, lhs_transposed: bool, vector_bytes: int = WIDEST
) -> Tiles | None:
    """Tile sizes for a product with loops batch..., m, n, k whose right side is (batch..., k, n).

    Args:
        batch: Sizes of the batch loops, empty for a plain product.
        m: Rows of the result; DYNAMIC where each call chooses, as for n and k.
        n: Columns of the result, contiguous in the right side and in the result.
        k: Length of the sums.
        lhs_transposed: Whether the left side is (batch..., k, m), as in weight gradients, and not (batch..., m, k).
        vector_bytes: Width of the CPU's vector registers.

    Returns:
        The tiles, or None where the compiler's own choice should stand: a size of zero.
    """
    is_known = DYNAMIC not in (m, n, k)
    m, n, k = (_UNKNOWN if size == DYNAMIC else size for size in (m, n, k))
    if min(*batch, m, n, k) < 1:
        return None
    tiles = math.prod(batch)
    if batch and max(m, k) <= _SHORT_SUM and n >= _LONG_ROW:
        vectors = _VECTORS["streams"]
        parts = (m, _LONG_ROW)
    elif batch and tiles >= _MANY_TILES and max(m, n) <= _TILE:
        vectors = _VECTORS["small tiles" if n % _STEP == 0 else "general"]
        parts = (m, n)
    elif tiles >= _MANY_TILES and m > _FEW_ROWS and n % _STEP == 0 and k <= _SHORT_SIDE:
        vectors = _VECTORS["small tiles"]
        parts = (_part(m), _STEP)
    else:
        vectors = _VECTORS[_plain_kind(m, n, lhs_transposed)]
        parts = (_part(m), _part(n))
    is_long_walk = lhs_transposed and not batch and k > _CACHED_STEPS
    # Of a product that is cut, the compiler starts a workgroup's whole part as one vector, and refuses too large ones.
    fits = math.prod(parts) * _FLOAT_BYTES < _LARGEST_VECTOR * vector_bytes
    return Tiles(
        distribution=(*_batch_parts(batch), *parts, 0),
        vector_parallel=(*(1 for _ in batch), vectors.m, vectors.n, 0),
        vector_reduction=(*(0 for _ in batch), 0, 0, vectors.k),
        cache_reduction=(0, 0, _CACHED_STEPS) if is_long_walk and is_known and fits else (),
    )


def panel_tiles(width: int, n: int) -> Tiles:
    """Tile sizes for loops panel, m, n, k with a left side (panel, k, m) and a right side (k, n).

    Args:
        width: Rows of the result that a panel covers, the size of m.
        n: Columns of the result.
    """
    vectors = _VECTORS["general"]
    return Tiles(
        distribution=(_STEP // width, 0, _part(n), 0),
        vector_parallel=(1, width, vectors.n, 0),
        vector_reduction=(0, 0, 0, vectors.k),
    )


def vector_tiles(batch: tuple[int, ...], n: int, k: int, *, along_rows: bool) -> Tiles | None:
    """Tile sizes for a product of a matrix and a vector, with loops batch..., n, k.

    Memory decides: what counts is that every load is a whole vector of the matrix.

    Args:
        batch: Sizes of the batch loops, empty for a plain product.
        n: Length of the result; DYNAMIC where each call chooses, as for k.
        k: Length of the sums.
        along_rows: Whether the matrix is (batch..., n, k), so that a sum runs along its rows, and not (batch..., k, n).

    Returns:
        The tiles, or None where the compiler's own choice should stand: a result too short for a tile.
    """
    n, k = (_UNKNOWN if size == DYNAMIC else size for size in (n, k))
    if min(*batch, k, 1) < 1 or n < _LANES or k < _LANES:
        return None
    vector_n = _LANES if along_rows else max(width for width in (_LANES, 2 * _LANES, 4 * _LANES) if width <= n)
    return Tiles(
        distribution=(*(1 for _ in batch), _VECTOR_PART, 0),
        vector_parallel=(*(1 for _ in batch), vector_n, 0),
        vector_reduction=(*(0 for _ in batch), 0, _LANES if along_rows else _LANES // 4),
    )


def _plain_kind(m: int, n: int, lhs_transposed: bool) -> str:
    if lhs_transposed:
        return "transposed left" if m >= _VECTORS["transposed left"].m else "general"
    if m <= _FEW_ROWS:
        return "few rows"
    return "long rows" if n >= _LONG_ROW and n % _STEP == 0 else "general"


def _part(size: int) -> int:
    """The part of a loop a workgroup takes: even parts if there is a divisor of a useful size."""
    if size % _STEP == 0:
        return _STEP
    if size <= _WHOLE:
        return size
    divisors = [part for part in range(_WHOLE, _STEP * 3 // 4, -1) if size % part == 0]
    return next((part for part in divisors if part % 8 == 0), divisors[0] if divisors else _STEP)


def _batch_parts(batch: Sequence[int]) -> tuple[int, ...]:
    """Several tiles of the innermost batch loop to a workgroup, while enough workgroups remain."""
    if not batch:
        return ()
    tiles, part = math.prod(batch), 1
    while part < _TILES_PER_GROUP and batch[-1] % (2 * part) == 0 and tiles // (2 * part) >= _MANY_TILES:
        part *= 2
    return (*(1 for _ in batch[:-1]), part)
