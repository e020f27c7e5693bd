"""The tile rule of CPU products: its choices as plain values, and uneven shapes compiled, run and compared."""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from trainc.compiler.iree import run_iree_compile
from trainc.compiler.targets import find_target
from trainc.ir.mlir import DYNAMIC
from trainc.passes.cpu_tiles import Tiles, contraction_tiles, panel_tiles, vector_tiles
from trainc.runtime.cpu_features import missing

SIZES = (1, 2, 5, 31, 63, 64, 65, 96, 131, 256, 257, 262, 419, 550, 1336, 2048)
BATCHES = ((), (1,), (3,), (32,), (256,), (4, 2), (8, 12))


@dataclass(frozen=True)
class Product:
    """One product of the compiled module."""

    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    lhs_transposed: bool = False
    fused: bool = False  # silu(x) * y as left side, a residual added to the result

    @property
    def name(self) -> str:
        form = "tn" if self.lhs_transposed else "nn"
        return "_".join([form, *map(str, (*self.batch, self.m, self.n, self.k)), "fused" if self.fused else "plain"])

    @property
    def lhs(self) -> tuple[int, ...]:
        return (*self.batch, self.k, self.m) if self.lhs_transposed else (*self.batch, self.m, self.k)

    @property
    def rhs(self) -> tuple[int, ...]:
        return (*self.batch, self.k, self.n)

    @property
    def out(self) -> tuple[int, ...]:
        return (*self.batch, self.m, self.n)


# Every row of the table of vectors, sizes below, at and just past the vectors and the parts, primes, and widths of
# the models.
PRODUCTS = (
    Product((), 1, 257, 64),
    Product((), 2, 419, 32),
    Product((), 5, 1336, 96),
    Product((), 63, 61, 131),
    Product((), 140, 419, 32, fused=True),
    Product((), 262, 257, 65, fused=True),
    Product((), 256, 550, 64),
    Product((), 131, 1, 5),
    Product((), 419, 33, 140, lhs_transposed=True, fused=True),
    Product((), 1336, 65, 3, lhs_transposed=True),
    Product((), 7, 257, 262, lhs_transposed=True),
    Product((), 40, 70, 601, lhs_transposed=True),
    Product((), 131, 1088, 33),
    Product((3,), 65, 131, 33, fused=True),
    Product((8,), 70, 70, 64, lhs_transposed=True),
    Product((2, 6), 61, 64, 1, fused=True),
    Product((8,), 270, 64, 33, fused=True),
    Product((16,), 31, 128, 70, lhs_transposed=True, fused=True),
    Product((4,), 16, 1088, 15),
    Product((3,), 50, 1025, 37, lhs_transposed=True, fused=True),
)

# Weight gradients over more steps than the cut, with parts that are too large for one vector: of AVX-512 the first,
# of AVX2 the second too, of SSE and NEON all.
LONG_WALKS = (
    Product((), 131, 131, 257, lhs_transposed=True),
    Product((), 64, 257, 512, lhs_transposed=True),
    Product((), 32, 64, 257, lhs_transposed=True, fused=True),
)


def _tensor(shape: tuple[int, ...]) -> str:
    return f"tensor<{'x'.join(map(str, shape))}xf32>"


def _elementwise(result: str, left: str, right: str, shape: tuple[int, ...], body: str) -> str:
    identity = ", ".join(f"d{axis}" for axis in range(len(shape)))
    maps = ", ".join([f"affine_map<({identity}) -> ({identity})>"] * 3)
    kinds = ", ".join(['"parallel"'] * len(shape))
    kind = _tensor(shape)
    return f"""
  {result}_init = tensor.empty() : {kind}
  {result} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}
      ins({left}, {right} : {kind}, {kind}) outs({result}_init : {kind}) {{
  ^bb0(%x: f32, %y: f32, %o: f32):
    {body}
    linalg.yield %r : f32
  }} -> {kind}"""


_SILU_TIMES = """%one = arith.constant 1.0 : f32
    %minus = arith.negf %x : f32
    %e = math.exp %minus : f32
    %sum = arith.addf %e, %one : f32
    %s = arith.divf %x, %sum : f32
    %r = arith.mulf %s, %y : f32"""


def _function(product: Product, vector_bytes: int) -> str:
    tiles = contraction_tiles(
        product.batch,
        product.m,
        product.n,
        product.k,
        lhs_transposed=product.lhs_transposed,
        vector_bytes=vector_bytes,
    )
    assert tiles is not None
    batch = [f"b{axis}" for axis in range(len(product.batch))]
    loops = ", ".join([*batch, "m", "n", "k"])
    ends = (["k", "m"] if product.lhs_transposed else ["m", "k"], ["k", "n"], ["m", "n"])
    maps = ", ".join(f"affine_map<({loops}) -> ({', '.join(batch + end)})>" for end in ends)
    kinds = ", ".join(['"parallel"'] * (len(batch) + 2) + ['"reduction"'])
    lhs, rhs, out = (_tensor(shape) for shape in (product.lhs, product.rhs, product.out))
    before = _elementwise("%left", "%a", "%gate", product.lhs, _SILU_TIMES) if product.fused else ""
    add = "%r = arith.addf %x, %y : f32"
    after = _elementwise("%final", "%product", "%residual", product.out, add) if product.fused else ""
    return f"""
func.func @{product.name}(%a: {lhs}, %b: {rhs}, %gate: {lhs}, %residual: {out}) -> {out} {{
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : {out}
  %fill = linalg.fill ins(%zero : f32) outs(%empty : {out}) -> {out}{before}
  %product = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}
      ins({"%left" if product.fused else "%a"}, %b : {lhs}, {rhs}) outs(%fill : {out})
      attrs = {{compilation_info = {tiles.attribute()}}} {{
  ^bb0(%x: f32, %y: f32, %o: f32):
    %p = arith.mulf %x, %y : f32
    %r = arith.addf %o, %p : f32
    linalg.yield %r : f32
  }} -> {out}{after}
  return {"%final" if product.fused else "%product"} : {out}
}}"""


def _expected(product: Product, a: Any, b: Any, gate: Any, residual: Any) -> Any:
    left = np.float64(a)
    if product.fused:
        left = left / (1 + np.exp(-left)) * gate
    if product.lhs_transposed:
        left = np.swapaxes(left, -1, -2)
    result = left @ np.float64(b)
    return result + residual if product.fused else result


@pytest.mark.parametrize(
    ("level", "products"),
    [("cpu", PRODUCTS + LONG_WALKS), ("x86-64-v3", LONG_WALKS), ("x86-64-v2", LONG_WALKS), ("aarch64", LONG_WALKS)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_uneven_products_compile_and_are_right(level: str, products: tuple[Product, ...]) -> None:
    import iree.runtime as rt

    target = find_target(level)
    text = "\n".join(_function(product, target.vector_bytes) for product in products)
    code = run_iree_compile(text, target.flags(), timeout_s=300, locations=None)
    if missing(target.features):
        return  # this machine can compile for the level, but not run its code
    config = rt.Config("local-sync")
    module = rt.load_vm_module(rt.VmModule.copy_buffer(config.vm_instance, code), config)
    rng = np.random.default_rng(0)
    for product in products:
        shapes = (product.lhs, product.rhs, product.lhs, product.out)
        operands = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]
        expected = _expected(product, *operands)
        found = module[product.name](*operands).to_host()
        scale = np.abs(expected).max()
        np.testing.assert_allclose(found / scale, expected / scale, rtol=0, atol=5e-6, err_msg=product.name)


@pytest.mark.parametrize(
    ("batch", "n", "k", "along_rows", "distribution", "vectors", "step"),
    [
        ((), 1336, 256, True, (128, 0), (16, 0), 16),
        ((4,), 64, 512, False, (1, 128, 0), (1, 64, 0), 4),
        ((2, 3), 40, 512, False, (1, 1, 128, 0), (1, 1, 32, 0), 4),
        ((), DYNAMIC, 16, True, (128, 0), (16, 0), 16),
    ],
)
def test_choices_for_a_vector(
    batch: tuple[int, ...],
    n: int,
    k: int,
    along_rows: bool,
    distribution: tuple[int, ...],
    vectors: tuple[int, ...],
    step: int,
) -> None:
    assert vector_tiles(batch, n, k, along_rows=along_rows) == Tiles(
        distribution, vectors, (*(0 for _ in batch), 0, step)
    )


@pytest.mark.parametrize("sizes", [((), 15, 64), ((), 64, 15), ((0,), 64, 64), ((), 0, 64)])
def test_no_choice_for_short_vectors(sizes: tuple[tuple[int, ...], int, int]) -> None:
    assert vector_tiles(*sizes, along_rows=True) is None


@pytest.mark.parametrize("batch", BATCHES, ids=str)
@pytest.mark.parametrize("lhs_transposed", [False, True], ids=["nn", "tn"])
def test_tiles_cover_every_loop(batch: tuple[int, ...], lhs_transposed: bool) -> None:
    for m, n, k in itertools.product(SIZES, repeat=3):
        tiles = contraction_tiles(batch, m, n, k, lhs_transposed=lhs_transposed)
        assert tiles is not None
        loops = (*batch, m, n)
        for row in (tiles.distribution, tiles.vector_parallel, tiles.vector_reduction):
            assert len(row) == len(loops) + 1
        assert tiles.distribution[-1] == 0 == tiles.vector_parallel[-1]
        assert all(1 <= part <= size for part, size in zip(tiles.distribution, loops, strict=False) if size >= 64)
        assert all(part >= 1 for part in tiles.distribution[:-1])
        assert all(step == 0 for step in tiles.vector_reduction[:-1])
        assert all(size % part == 0 for part, size in zip(tiles.distribution, batch, strict=False))
        widths = (*tiles.vector_parallel[:-1], tiles.vector_reduction[-1])
        assert all(width & (width - 1) == 0 for width in widths), "vector widths are powers of two"
        assert math.prod(tiles.vector_parallel[:-1]) <= 256, "the result tile fits the vector registers"


@pytest.mark.parametrize(
    ("batch", "m", "n", "k", "lhs_transposed", "distribution", "vectors", "step"),
    [
        ((), 2048, 1336, 256, False, (64, 64, 0), (8, 16, 0), 4),
        ((), 1336, 256, 2048, True, (64, 64, 0), (16, 16, 0), 4),
        ((), 2048, 512, 256, False, (64, 64, 0), (8, 16, 0), 4),
        ((), 2048, 1024, 256, False, (64, 64, 0), (8, 32, 0), 4),
        ((), 8, 1336, 256, False, (8, 64, 0), (4, 32, 0), 8),
        ((64,), 4, 8192, 3, False, (8, 4, 1024, 0), (1, 4, 64, 0), 1),
        ((), 256, 550, 64, False, (64, 110, 0), (8, 16, 0), 4),
        ((), 262, 257, 64, False, (131, 64, 0), (8, 16, 0), 4),
        ((), 419, 32, 140, True, (64, 32, 0), (16, 16, 0), 4),
        ((256,), 64, 128, 64, False, (8, 64, 128, 0), (1, 4, 64, 0), 4),
        ((32,), 64, 256, 64, False, (4, 64, 256, 0), (1, 4, 64, 0), 4),
        ((32,), 1024, 64, 64, False, (4, 64, 64, 0), (1, 4, 64, 0), 4),
        ((64,), 16, 8192, 15, False, (8, 16, 1024, 0), (1, 4, 64, 0), 1),
        ((32,), 64, 1024, 64, False, (4, 64, 1024, 0), (1, 4, 64, 0), 1),
        ((32,), 64, 1024, 65, False, (4, 64, 64, 0), (1, 4, 64, 0), 4),
        ((32,), 1024, 64, 192, False, (4, 64, 64, 0), (1, 8, 16, 0), 4),
        ((32,), 8, 1024, 65, False, (4, 8, 64, 0), (1, 4, 32, 0), 8),
        ((16,), 70, 70, 64, True, (2, 70, 70, 0), (1, 8, 16, 0), 4),
        ((2, 3), 257, 64, 64, False, (1, 1, 64, 64, 0), (1, 1, 8, 16, 0), 4),
        ((), DYNAMIC, 550, 64, False, (64, 110, 0), (8, 16, 0), 4),
        ((), 1336, 256, DYNAMIC, True, (64, 64, 0), (16, 16, 0), 4),
    ],
)
def test_choices(
    batch: tuple[int, ...],
    m: int,
    n: int,
    k: int,
    lhs_transposed: bool,
    distribution: tuple[int, ...],
    vectors: tuple[int, ...],
    step: int,
) -> None:
    tiles = contraction_tiles(batch, m, n, k, lhs_transposed=lhs_transposed)
    assert tiles is not None
    assert (tiles.distribution, tiles.vector_parallel) == (distribution, vectors)
    assert tiles.vector_reduction == (*(0 for _ in batch), 0, 0, step)


@pytest.mark.parametrize(
    ("m", "k", "lhs_transposed", "vector_bytes", "cached"),
    [
        (512, 256, True, 64, ()),
        (512, 2048, True, 64, (0, 0, 256)),
        (512, 2048, False, 64, ()),
        (512, DYNAMIC, True, 64, ()),
        (512, 2048, True, 32, ()),
        (63, 2048, True, 32, (0, 0, 256)),
        (63, 2048, True, 16, ()),
        (127, 2048, True, 64, (0, 0, 256)),
        (128 + 3, 2048, True, 64, ()),
    ],
)
def test_long_walks_down_columns_are_cut_where_a_part_fits_a_vector(
    m: int, k: int, lhs_transposed: bool, vector_bytes: int, cached: tuple[int, ...]
) -> None:
    tiles = contraction_tiles((), m, 256, k, lhs_transposed=lhs_transposed, vector_bytes=vector_bytes)
    assert tiles is not None
    assert tiles.cache_reduction == cached
    assert (f"cache_reduction = {list(cached)}" in tiles.attribute()) == bool(cached)


def test_panels_are_taken_whole() -> None:
    assert panel_tiles(8, 256) == Tiles((8, 0, 64, 0), (1, 8, 16, 0), (0, 0, 0, 4))


@pytest.mark.parametrize("sizes", [((), 0, 4, 4), ((), 4, 4, 0), ((0,), 4, 4, 4), ((), DYNAMIC, 0, 4)])
def test_no_choice_for_empty_sizes(sizes: tuple[tuple[int, ...], int, int, int]) -> None:
    batch, m, n, k = sizes
    assert contraction_tiles(batch, m, n, k, lhs_transposed=False) is None


def test_tiles_follow_the_loops() -> None:
    tiles = Tiles((8, 4, 1024, 0), (1, 4, 64, 0), (0, 0, 0, 1))
    # Loops: rows, batch, columns, sums.
    moved = tiles.in_loop_order([1, 0, 2, 3])
    assert moved == Tiles((4, 8, 1024, 0), (4, 1, 64, 0), (0, 0, 0, 1))
    cached = Tiles((64, 64, 0), (16, 16, 0), (0, 0, 4), (0, 0, 256)).in_loop_order([1, 2, 0])
    assert cached == Tiles((0, 64, 64), (0, 16, 16), (4, 0, 0), (256, 0, 0))


def test_attribute_text() -> None:
    assert Tiles((64, 64, 0), (8, 16, 0), (0, 0, 4)).attribute() == (
        "#iree_codegen.compilation_info<lowering_config = #iree_cpu.lowering_config<distribution = [64, 64, 0], "
        "vector_common_parallel = [8, 16, 0], vector_reduction = [0, 0, 4]>, translation_info = "
        "#iree_codegen.translation_info<pipeline = #iree_cpu.pipeline<DoubleTilingExpert>, {enable_loop_peeling}>>"
    )
