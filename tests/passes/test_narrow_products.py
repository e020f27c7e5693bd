"""narrow-products: what it changes in numbers, and that the compiler takes every surrounding of a narrow product."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.bf16 import needs_bf16
from trainc.compiler import build
from trainc.frontends.tracing.artifact import Source, compile_artifact
from trainc.ir.interpret import interpret
from trainc.ir.primitives import elementwise, map_many, matmul, reduce_sum, reshape
from trainc.ir.program import Argument, Program, Result, trace
from trainc.ir.scalar import exp
from trainc.ir.tensor import Aval, Tensor
from trainc.passes.linalg_build import BARRIER
from trainc.passes.narrow_products import PACKED
from trainc.passes.pipelines import cpu_pipeline, gpu_pipeline
from trainc.runtime.artifact import Artifact
from trainc.runtime.device import open_device
from trainc.runtime.program import Program as Loaded

Array = npt.NDArray[Any]

# Float32 sums of at most 4,500 terms, in any order, against float64: below sqrt(4500) * 2**-24 of the largest result.
ACCUMULATED_IN_F32 = 4e-6

# One rounding to bfloat16 is an error of up to 2**-9 for each factor; over a sum of random terms they average out to
# about 2**-9 of the result's usual size, a few times less of its largest.
ROUNDED = 5e-3


def to_bf16(x: Array) -> Array:
    """Round float32 values to bfloat16, to nearest, ties to even."""
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def run(program: Program, inputs: Mapping[str, Array], folder: Path) -> dict[str, list[Array]]:
    """Compile a program in bf16 and call each of its functions with the inputs it names."""
    path = folder / "narrow.trainc"
    manifest = compile_artifact(Source({"m": program}, numeric_mode="fast", precision="bf16"), path)
    loaded = Loaded(Artifact.open(path), open_device("cpu"))
    try:
        return {
            name: list(loaded.call(name, {arg.name: inputs[arg.name] for arg in entry.args}).values())
            for name, entry in manifest.entries.items()
        }
    finally:
        loaded.release()


def add_function(program: Program, name: str, build: Callable[..., Any], inputs: Mapping[str, Array]) -> None:
    def function(*tensors: Tensor) -> list[Result]:
        built = build(*tensors)
        results = built if isinstance(built, list) else [built]
        return [Result(f"r{i}", result) for i, result in enumerate(results)]

    trace(program, name, function, [Argument(key, Aval(value.shape)) for key, value in inputs.items()])


def largest_error(found: Array, wanted: Array) -> float:
    return float(np.max(np.abs(found - wanted)) / np.max(np.abs(wanted)))


# Form and shapes of both operands; among them sizes that fill no tile, and long sums.
FORMS = {
    "nn": ("tk,kn->tn", (96, 64), (64, 128)),
    "tn": ("tm,tn->mn", (96, 64), (96, 128)),
    "nt": ("tk,nk->tn", (96, 64), (128, 64)),
    "turned": ("tk,kn->nt", (96, 64), (64, 128)),
    "uneven": ("tk,kn->tn", (67, 131), (131, 61)),
    "uneven_tn": ("tm,tn->mn", (131, 67), (131, 61)),
    "long": ("tk,kn->tn", (40, 4500), (4500, 48)),
    "long_tn": ("tm,tn->mn", (4500, 40), (4500, 48)),
}


@needs_bf16
@pytest.mark.parametrize("pipeline", [cpu_pipeline, gpu_pipeline])
def test_products_of_rounded_operands_are_summed_in_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: Callable[..., Any]
) -> None:
    """Each product, alone and continuing a sum, against float64 products of what it should have rounded."""
    monkeypatch.setattr(
        build, "pipeline_for", lambda family, tables, mode, precision, _: pipeline(tables, mode, precision)
    )
    rng, program, inputs, wanted = np.random.default_rng(0), Program(), {}, {}
    for name, (spec, *shapes) in FORMS.items():
        left, right = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
        exact = np.einsum(spec, to_bf16(left).astype(np.float64), to_bf16(right))
        unrounded = np.einsum(spec, left.astype(np.float64), right)
        start = rng.standard_normal(exact.shape).astype(np.float32)
        given = {f"{name}_left": left, f"{name}_right": right, f"{name}_start": start}
        inputs |= given
        wanted[name] = exact, unrounded, start

        def both(a: Tensor, b: Tensor, c: Tensor, spec: str = spec) -> list[Tensor]:
            return [matmul(spec, a, b), matmul(spec, a, b, start=c)]

        add_function(program, name, both, given)
    for name, (alone, continued) in run(program, inputs, tmp_path).items():
        exact, unrounded, start = wanted[name]
        assert largest_error(alone, exact) < ACCUMULATED_IN_F32, name
        assert largest_error(continued, exact + start) < ACCUMULATED_IN_F32, name
        assert largest_error(alone, unrounded) > 10 * ACCUMULATED_IN_F32, f"{name}: not rounded"


def test_products_for_gpus_are_not_packed_and_keep_their_barriers() -> None:
    program = Program()
    shapes = {"a": (64, 96), "b": (96, 128), "c": (128, 64)}
    inputs = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    add_function(program, "f", lambda a, b, c: matmul("ij,jk->ik", matmul("ij,jk->ik", a, b), c), inputs)
    text = build.lower(program, {}, "fast", "bf16", "cuda")
    assert text.count("arith.truncf") == 4
    assert PACKED not in text
    (rounded,) = re.findall(r"ins\((%\w+) : \S+\) outs\(%\w+ : tensor<64x128xbf16>\)", text)
    assert f"{rounded} = {BARRIER}" in text


def two_results(product: Tensor, other: Tensor) -> list[Tensor]:
    return list(map_many("ab,ab->ab", lambda p, o: (p * o, p + o), product, other))


def two_readers(product: Tensor, other: Tensor) -> list[Tensor]:
    return [elementwise(lambda p, o: p * exp(o), product, other), elementwise(lambda p, o: p - o, product, other)]


def two_results_of_a_reshape(product: Tensor, other: Tensor) -> list[Tensor]:
    rows, columns = product.shape
    shape = (4, rows // 4, columns)
    return list(map_many("abc,abc->abc", lambda p, o: (p * o, p + o), reshape(product, shape), reshape(other, shape)))


def sums(product: Tensor, other: Tensor) -> list[Tensor]:
    return [reduce_sum("ab->a", product), elementwise(lambda p, o: p * o, product, other)]


def chained(product: Tensor, other: Tensor) -> list[Tensor]:
    return [matmul("tn,tm->nm", product, other), elementwise(lambda p, o: p + o, product, other)]


# What may read a product. Without a barrier behind it the first three do not compile with iree-compile 3.13.0.
READERS = (two_results, two_readers, two_results_of_a_reshape, sums, chained)


@needs_bf16
def test_whatever_reads_a_product_compiles_and_is_right(tmp_path: Path) -> None:
    rng, program = np.random.default_rng(1), Program()
    shapes = {"left": (2048, 256), "right": (256, 1024), "other": (2048, 1024)}
    inputs = {name: (rng.standard_normal(shape) / 16).astype(np.float32) for name, shape in shapes.items()}
    for reader in READERS:

        def read(left: Tensor, right: Tensor, other: Tensor, reader: Callable[..., Any] = reader) -> list[Tensor]:
            return list(reader(matmul("tk,kn->tn", left, right), other))

        add_function(program, reader.__name__, read, inputs)
    for name, results in run(program, inputs, tmp_path).items():
        for found, wanted in zip(results, interpret(program, name, list(inputs.values())), strict=True):
            assert largest_error(found, wanted) < ROUNDED, name
