"""Programs whose loops are longer than a Vulkan device runs them, compiled for Mesa's lavapipe, run, and compared.

It ends all loops of a kernel after 65,535 rounds in all and returns what it has, so numbers are the only test.
"""

from pathlib import Path

import numpy as np
import pytest

from tests.passes.test_values import error, run
from trainc.core.errors import UnsupportedError
from trainc.ir.mlir import DYNAMIC
from trainc.ir.primitives import elementwise, matmul, scatter_add
from trainc.ir.program import Argument, Program, Result, trace
from trainc.ir.tensor import Aval, Tensor
from trainc.passes.pipelines import gpu_pipeline, run_text
from trainc.runtime.device import Device

# Name, notation, shapes of the operands: weight gradients by number of tokens, and the other forms of a long sum.
PRODUCTS = (
    ("tn_65536", "km,kn->mn", (65_536, 3), (65_536, 5)),
    ("tn_70001", "km,kn->mn", (70_001, 9), (70_001, 17)),
    ("tn_300001", "km,kn->mn", (300_001, 2), (300_001, 3)),
    ("nn", "mk,kn->mn", (3, 70_001), (70_001, 5)),
    ("nt", "mk,nk->mn", (3, 70_001), (5, 70_001)),
    ("vector", "km,k->m", (70_001, 3), (70_001,)),
    ("batched", "bkm,bkn->bmn", (2, 70_001, 3), (2, 70_001, 4)),
    ("two_sums", "ijm,ijn->mn", (300, 257, 3), (300, 257, 2)),
)

# Rows that are added by index, their width, and the rows they are added to: more than the limit; too many only together
# with their width, as in the gradient of any embedding; and few.
ROWS = ((70_001, 4, 13), (2048, 64, 61), (300, 9, 503))

# Sums of up to 300,001 products of numbers between 0.5 and 1.5, in runs of 8,192 float32 additions and longer chains of
# runs: measured 1.5e-5. A single missing row of 65,536 is as large, a missing round of four is not.
RIGHT = 3e-5


def test_long_products_are_right(vulkan: Device, tmp_path: Path) -> None:
    program, inputs, wanted = Program(), {}, {}
    rng = np.random.default_rng(7)
    for name, spec, left, right in PRODUCTS:

        def product(a: Tensor, b: Tensor, spec: str = spec) -> list[Result]:
            return [Result("y", matmul(spec, a, b))]

        trace(program, name, product, [Argument(f"{name}_a", Aval(left)), Argument(f"{name}_b", Aval(right))])
        a, b = (rng.uniform(0.5, 1.5, shape).astype(np.float32) for shape in (left, right))
        inputs |= {f"{name}_a": a, f"{name}_b": b}
        wanted[name] = np.einsum(spec, np.float64(a), np.float64(b))
    found = run(program, gpu_pipeline({}), inputs, tmp_path, "lavapipe", vulkan)
    errors = {name: error(value, wanted[name]) for name, (value,) in found.items()}
    assert max(errors.values()) < RIGHT, errors


def test_a_long_product_goes_on_from_its_start(vulkan: Device, tmp_path: Path) -> None:
    def product(a: Tensor, b: Tensor, start: Tensor) -> list[Result]:
        return [Result("y", matmul("km,kn->mn", a, b, elementwise(lambda x: x * 3.0, start)))]

    program = Program()
    shapes = {"a": (20_000, 3), "b": (20_000, 2), "start": (3, 2)}
    trace(program, "f", product, [Argument(name, Aval(shape)) for name, shape in shapes.items()])
    rng = np.random.default_rng(7)
    inputs = {name: rng.uniform(0.5, 1.5, shape).astype(np.float32) for name, shape in shapes.items()}
    inputs["start"] *= 10_000
    ((found,),) = run(program, gpu_pipeline({}), inputs, tmp_path, "lavapipe", vulkan).values()
    a, b, start = (np.float64(inputs[name]) for name in shapes)
    assert error(found, a.T @ b + 3 * start) < RIGHT


def test_many_added_rows_are_right(vulkan: Device, tmp_path: Path) -> None:
    program, inputs, wanted = Program(), {}, {}
    rng = np.random.default_rng(7)
    for count, width, rows in ROWS:
        name = f"rows_{count}"

        def add(updates: Tensor, ids: Tensor, rows: int = rows) -> list[Result]:
            return [Result("y", scatter_add(updates, ids, rows))]

        arguments = [Argument(f"{name}_x", Aval((count, width))), Argument(f"{name}_ids", Aval((count,), "i32"))]
        trace(program, name, add, arguments)
        x = rng.uniform(0.5, 1.5, (count, width)).astype(np.float32)
        ids = rng.integers(0, rows, count).astype(np.int32)
        inputs |= {f"{name}_x": x, f"{name}_ids": ids}
        wanted[name] = np.zeros((rows, width))
        np.add.at(wanted[name], ids, np.float64(x))
    found = run(program, gpu_pipeline({}), inputs, tmp_path, "lavapipe", vulkan)
    errors = {name: error(value, wanted[name]) for name, (value,) in found.items()}
    assert max(errors.values()) < RIGHT, errors


def _sum_of_products(a: Tensor, b: Tensor) -> list[Result]:
    return [Result("y", matmul("km,kn->mn", a, b))]


def _added_rows(x: Tensor, ids: Tensor) -> list[Result]:
    return [Result("y", scatter_add(x, ids, rows=5))]


@pytest.mark.parametrize(
    ("name", "function", "avals", "what"),
    [
        ("split-reductions", _sum_of_products, [Aval((DYNAMIC, 3)), Aval((DYNAMIC, 3))], "a product over a length"),
        ("add-rows-by-product", _added_rows, [Aval((DYNAMIC, 3)), Aval((DYNAMIC,), "i32")], "adding as many rows"),
    ],
)
def test_lengths_that_each_call_chooses_are_refused(name, function, avals, what) -> None:
    program = Program()
    trace(program, "f", function, [Argument(f"x{i}", aval) for i, aval in enumerate(avals)])
    with pytest.raises(UnsupportedError, match=f"{what}.*each call chooses cannot be compiled for this target"):
        run_text(program.print(), [name])
