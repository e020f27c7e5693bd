"""Passes that must not change values: programs compiled with and without them, and run.

The second half is about guard-double-reads, whose absence gives wrong numbers without any message.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest

from tests.passes.double_reads import unguarded_double_reads
from trainc.compiler.artifact_writer import write_artifact
from trainc.compiler.build import describe_entries
from trainc.compiler.iree import run_iree_compile
from trainc.compiler.targets import find_target
from trainc.core.manifest import Manifest, Target
from trainc.frontends.samba.config_file import load_config
from trainc.frontends.samba.tracing.entries import trace_train
from trainc.ir import builder
from trainc.ir.backward import backward
from trainc.ir.interpret import interpret
from trainc.ir.mlir import entry_block, functions, scope
from trainc.ir.ops.add import add
from trainc.ir.ops.cross_entropy import cross_entropy
from trainc.ir.ops.linear import linear
from trainc.ir.ops.rms_norm import rms_norm
from trainc.ir.ops.swiglu import swiglu
from trainc.ir.primitives import (
    barrier,
    elementwise,
    map_,
    matmul,
    reduce_max,
    reduce_sum,
    reshape,
    slice_axis,
)
from trainc.ir.program import Argument, Program, Result, trace
from trainc.ir.scalar import Scalar, exp, minimum
from trainc.ir.tensor import Aval, Tensor
from trainc.passes.base import Pass
from trainc.passes.pipelines import TO_LINALG, TO_PRIMITIVES, cpu_pipeline
from trainc.passes.runner import run_passes
from trainc.passes.tile_cpu import TileCpu
from trainc.runtime.artifact import Artifact
from trainc.runtime.device import Device, open_device
from trainc.runtime.program import Program as Loaded

Array = npt.NDArray[Any]
SMALL = Path(__file__).resolve().parents[2] / "examples/samba_small.toml"

# Both sides are float32. Where a pass moves the borders of fused loops or the order of a sum, a result of sums over n
# terms may differ by about sqrt(n) * 2**-24 of its largest element: 5e-7 for the largest sums here (64 terms).
REORDERED = 2e-6

# Against float64: a gradient comes through up to five products and the exponentials of a softmax; measured 4e-6.
EXACT = 2e-5


def run(
    program: Program,
    passes: Sequence[Pass],
    inputs: Mapping[str, Array],
    folder: Path,
    name: str = "cpu",
    device: Device | None = None,
) -> dict[str, list[Array]]:
    """Compile a program by a pipeline and call each of its functions.

    Args:
        program: Left unchanged.
        passes: From traced ops to what iree-compile takes.
        inputs: Arguments by name, the same for all functions.
        folder: Where the compiled artifact goes.
        name: Name of the target.
        device: What to run it on; None is this CPU.

    Returns:
        The results of every function by its name.
    """
    target = find_target(name)
    lowered = program.clone()
    run_passes(lowered, passes)
    text = lowered.print(debug_info=True)
    module = run_iree_compile(text, target.flags(), timeout_s=300, locations=program.table)
    manifest = Manifest(
        trainc_version="test",
        kind="kernel",
        config={},
        settings={},
        numeric_mode="deterministic",
        precision="f32",
        state={},
        entries=describe_entries({"m": program}, {}),
        targets={name: Target(target.driver, target.arch, target.features, target.subgroup_sizes, {})},
        compiler={"version": "test", "flags": {}},
    )
    write_artifact(folder / "values.trainc", manifest, {name: {"m": module}})
    loaded = Loaded(Artifact.open(folder / "values.trainc"), device or open_device("cpu"))
    try:
        return {
            called: list(loaded.call(called, {arg.name: inputs[arg.name] for arg in entry.args}).values())
            for called, entry in manifest.entries.items()
        }
    finally:
        loaded.release()


def without(passes: Sequence[Pass], *names: str) -> list[Pass]:
    """Return a pipeline without the passes of some names, each of which must be in it."""
    assert set(names) <= {item.name for item in passes}
    return [item for item in passes if item.name not in names]


def error(found: Array, wanted: Array) -> float:
    """Return the largest difference over the largest wanted element."""
    return float(np.max(np.abs(found - wanted)) / np.max(np.abs(wanted)))


# --- with and without -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Barriers:
    """Put a barrier after every primitive op that computes, or (keep=False) take every barrier out."""

    name: ClassVar[str] = "test-barriers"
    keep: bool = True

    def run(self, program: Program) -> None:
        with scope():
            for function in functions(program.module):
                for item in list(entry_block(function).operations)[:-1]:
                    op = item.operation
                    if self.keep and op.name in ("train.map", "train.reduce", "train.matmul"):
                        self._add(op)
                    elif not self.keep and op.name == "train.barrier":
                        op.results[0].replace_all_uses_with(op.operands[0])
                        op.erase()

    def _add(self, op: Any) -> None:
        operations = [item.operation for item in op.parent.regions[0].blocks[0].operations]
        with builder.rewriting(operations[operations.index(op) + 1]), op.location:
            for result in op.results:
                guarded = barrier(Tensor(result)).value
                for use in list(result.uses):
                    if use.owner != guarded.owner:
                        use.owner.operands[use.operand_number] = guarded


def step(
    x: Tensor, scale: Tensor, gate: Tensor, up: Tensor, down: Tensor, head: Tensor, targets: Tensor
) -> list[Tensor]:
    """Return loss and gradients of a gated block; its norm is computed twice and a product is not used.

    Sum and product of two tensors come last: ops that differ in nothing but what they compute.
    """
    linear(x, gate)
    left, right = linear(rms_norm(x, scale, 1e-5), gate), linear(rms_norm(x, scale, 1e-5), up)
    out = add(x, linear(swiglu(left, right), down))
    loss = cross_entropy(linear(out, head), targets, reduce_sum("a->", scale))
    both = [elementwise(function, left, right) for function in (lambda a, b: a + b, lambda a, b: a * b)]
    return [loss, *backward(loss, [x, scale, gate, up, down, head]), *both]


@pytest.fixture(scope="module")
def block() -> tuple[Program, dict[str, Array]]:
    """The block as a program, sizes that tile-cpu has tiles for, and its inputs."""
    shapes = {"x": (48, 64), "scale": (64,), "gate": (128, 64), "up": (128, 64), "down": (64, 128), "head": (96, 64)}
    rng = np.random.default_rng(0)
    inputs = {name: 0.3 * rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    inputs["scale"] += 1.0
    inputs["targets"] = rng.integers(0, 96, 48).astype(np.int32)
    program = Program()
    arguments = [Argument(name, Aval(shape)) for name, shape in shapes.items()] + [
        Argument("targets", Aval((48,), "i32"))
    ]
    trace(program, "step", lambda *t: [Result(f"r{i}", r) for i, r in enumerate(step(*t))], arguments)
    return program, inputs


def lowered_text(program: Program, passes: Sequence[Pass]) -> str:
    copy = program.clone()
    run_passes(copy, passes)
    return copy.print()


FULL = cpu_pipeline({})
VARIANTS: dict[str, tuple[list[Pass], float]] = {
    # Nothing numeric depends on these two: the compiler drops what they leave. The bits are equal.
    "without cse": (without(FULL, "cse"), 0.0),
    "without dce": (without(FULL, "dce"), 0.0),
    "without tile-cpu": (without(FULL, "tile-cpu"), REORDERED),
    "barriers everywhere": ([*TO_PRIMITIVES, Barriers(), *FULL[len(TO_PRIMITIVES) :]], REORDERED),
}


def test_passes_keep_values(block: tuple[Program, dict[str, Array]], tmp_path: Path) -> None:
    program, inputs = block
    exact = interpret(program, "step", list(inputs.values()))
    text = lowered_text(program, FULL)
    plain = run(program, FULL, inputs, tmp_path)["step"]
    for found, wanted in zip(plain, exact, strict=True):
        assert error(found, wanted) < EXACT
    for name, (passes, tolerance) in VARIANTS.items():
        assert lowered_text(program, passes) != text, f"{name}: nothing to compare, the pass had nothing to do"
        for found, wanted in zip(run(program, passes, inputs, tmp_path)["step"], plain, strict=True):
            assert error(found, wanted) <= tolerance, name


def test_panels_keep_values(tmp_path: Path) -> None:
    avals = {"a": Aval((515, 2056)), "b": Aval((515, 33)), "s": Aval((2056, 33))}
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal(aval.shape).astype(np.float32) for name, aval in avals.items()}

    def products(a: Tensor, b: Tensor, start: Tensor) -> list[Result]:
        return [Result("r", matmul("tn,tk->nk", a, b)), Result("more", matmul("tn,tk->nk", a, b, start))]

    program = Program()
    trace(program, "step", products, [Argument(name, aval) for name, aval in avals.items()])
    plain = without(FULL, "pack-panels")
    assert lowered_text(program, plain) != lowered_text(program, FULL)
    exact = np.float64(inputs["a"]).T @ inputs["b"]
    packed, whole = (run(program, passes, inputs, tmp_path)["step"] for passes in (FULL, plain))
    for found, unpacked, wanted in zip(packed, whole, (exact, exact + inputs["s"]), strict=True):
        assert error(found, wanted) < EXACT
        assert error(found, unpacked) <= REORDERED


# --- double reads -----------------------------------------------------------------------------------------------------


def decay(i: Scalar, j: Scalar) -> Scalar:
    return exp(minimum(i - j, 0.0))


def sums(x: Tensor) -> Tensor:
    return reduce_sum("xij->xi", x)


def halves(x: Tensor) -> Tensor:
    """Return the sums as (x, 2, i/2)."""
    return reshape(sums(x), (x.shape[0], 2, x.shape[1] // 2))


def last_row(x: Tensor) -> Tensor:
    scores = matmul("xij,xkj->xik", x, x)
    return reshape(slice_axis(scores, 1, x.shape[1] - 1, 1), x.shape[:2])


def twice(spec: str, value: Tensor, other: Tensor | None = None) -> Tensor:
    return map_(spec, decay, value, value if other is None else other)


# All of these read one reduction in two ways. Most came out wrong at some size with iree-compile 3.13.0.
DOUBLE: dict[str, Callable[[Tensor], Tensor]] = {
    "directly": lambda x: twice("xi,xj->xij", sums(x)),
    "one dimension": lambda x: twice("x,y->xy", reduce_max("xij->x", x)),
    "a product": lambda x: map_("xik,xki->xik", lambda a, b: a - 2.0 * b, *[matmul("xij,xkj->xik", x, x)] * 2),
    "through a map": lambda x: twice("xi,xj->xij", sums(x), elementwise(lambda e: 0.5 * e, sums(x))),
    "through a reshape": lambda x: twice("xai,xaj->xaij", halves(x)),
    "through a reshape and a map": lambda x: twice(
        "xai,xaj->xaij", halves(x), elementwise(lambda e: 2.0 * e, halves(x))
    ),
    "a reshape and the sums": lambda x: twice("axi,xj->axij", reshape(sums(x), (1, *x.shape[:2])), sums(x)),
    "two reshapes": lambda x: twice(
        "axi,xaj->axij", *(reshape(sums(x), s) for s in ((1, *x.shape[:2]), (x.shape[0], 1, x.shape[1])))
    ),
    "a slice": lambda x: twice("xi,xj->xij", slice_axis(sums(x), 1, 1, x.shape[1] - 2)),
    "a slice of a map": lambda x: twice(
        "xi,xj->xij", slice_axis(elementwise(lambda e: 0.5 * e, sums(x)), 1, 0, x.shape[1] - 1)
    ),
    "a row of a product": lambda x: twice("xi,xj->xij", last_row(x)),
    "summed again": lambda x: reduce_sum("xij->xi", twice("xi,xj->xij", sums(x))),
}

# These read it in one way, or only what is no fresh reduction.
SINGLE: dict[str, Callable[[Tensor], Tensor]] = {
    "one reading": lambda x: map_("xi,xij->xij", lambda s, e: e - s, sums(x), x),
    "the same reading twice": lambda x: map_(
        "xi,xi->xi", lambda a, b: a * b, sums(x), elementwise(lambda e: 2.0 * e, sums(x))
    ),
    "there and back": lambda x: map_("xi,xi->xi", lambda a, b: a * b, sums(x), reshape(halves(x), x.shape[:2])),
    "an argument": lambda x: map_("xij,xji->xij", lambda a, b: a - b, *[slice_axis(x, 2, 0, x.shape[1])] * 2),
    "behind a barrier": lambda x: twice("xi,xj->xij", barrier(sums(x))),
    "two slices": lambda x: twice(
        "xi,xj->xij", slice_axis(sums(x), 1, 0, x.shape[1] - 1), slice_axis(sums(x), 1, 1, x.shape[1] - 1)
    ),
    "a slice and the sums": lambda x: twice("xi,xj->xij", sums(x), slice_axis(sums(x), 1, 0, x.shape[1] - 1)),
}
SIZES = ((2, 64, 64), (3, 18, 33), (8, 130, 130))


def patterns(builds: Mapping[str, Callable[[Tensor], Tensor]], shape: tuple[int, ...]) -> Program:
    """Return a program with one function a pattern."""
    program = Program()
    for name, build in builds.items():

        def function(x: Tensor, build: Callable[[Tensor], Tensor] = build) -> list[Result]:
            return [Result("out", build(x))]

        trace(program, name.replace(" ", "_"), function, [Argument("x", Aval(shape))])
    return program


def sample(shape: tuple[int, ...]) -> dict[str, Array]:
    """Draw inputs whose sums are of order one, so that exp does not magnify their rounding."""
    return {"x": (np.random.default_rng(1).standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)}


def counts(program: Program, passes: Sequence[Pass]) -> dict[str, int]:
    """Return how many barriers each function has after a pipeline."""
    copy = program.clone()
    run_passes(copy, passes)
    with scope():
        return {
            function.name.value.replace("_", " "): str(function).count("compute_barrier")
            for function in functions(copy.module)
        }


def test_products_with_a_vector_are_tiled_and_right(tmp_path: Path) -> None:
    """Matrices read along their rows and across, alone and batched, with sizes that fill no vector."""
    rng = np.random.default_rng(0)
    specs = {"nk,k->n": (), "k,kn->n": (), "xynk,xyk->xyn": (2, 3), "xk,xkn->xn": (3,)}
    program, inputs, wanted = Program(), {}, {}
    for number, (spec, (n, k)) in enumerate(itertools.product(specs, ((16, 16), (67, 33), (129, 61), (1336, 256)))):
        sizes = {"n": n, "k": k, "x": specs[spec][0] if specs[spec] else 0, "y": 3}
        operands = spec.partition("->")[0].split(",")
        a, b = (rng.standard_normal([sizes[letter] for letter in term], dtype=np.float32) for term in operands)
        names = [f"a{number}", f"b{number}"]
        inputs |= dict(zip(names, (a, b), strict=True))
        wanted[f"f{number}"] = np.einsum(spec, a.astype(np.float64), b.astype(np.float64))
        arguments = [Argument(name, Aval(inputs[name].shape)) for name in names]
        trace(program, f"f{number}", lambda a, b, spec=spec: [Result("out", matmul(spec, a, b))], arguments)
    lowered = program.clone()
    run_passes(lowered, [*TO_LINALG, TileCpu()])
    assert lowered.print().count("compilation_info = #") == len(wanted)
    for name, (found,) in run(program, cpu_pipeline({}), inputs, tmp_path).items():
        assert error(found, wanted[name]) < REORDERED, name


def test_every_double_read_is_guarded_and_nothing_else() -> None:
    double, single = patterns(DOUBLE, SIZES[0]), patterns(SINGLE, SIZES[0])
    assert all(counts(double, FULL).values()), counts(double, FULL)
    without_guard = without(FULL, "guard-double-reads")
    assert counts(single, FULL) == counts(single, without_guard)


@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_double_reads_are_right(shape: tuple[int, ...], tmp_path: Path) -> None:
    program = patterns(DOUBLE | SINGLE, shape)
    inputs = sample(shape)
    for name, (found,) in run(program, FULL, inputs, tmp_path).items():
        (wanted,) = interpret(program, name, [inputs["x"]])
        assert error(found, wanted) < REORDERED, name


def test_without_the_guard_they_are_wrong(tmp_path: Path) -> None:
    """The day this fails, the compiler may be cured and the pass may go."""
    program = patterns({"a slice": DOUBLE["a slice"]}, SIZES[0])
    inputs = sample(SIZES[0])
    ((found,),) = run(program, without(FULL, "guard-double-reads"), inputs, tmp_path).values()
    (wanted,) = interpret(program, "a_slice", [inputs["x"]])
    assert error(found, wanted) > 0.1


def test_no_double_read_is_left_in_a_training_step() -> None:
    """Model S, as it is and with all of its own barriers taken out, so that the pass has something to find."""
    program = trace_train(load_config(SMALL))
    run_passes(program, TO_PRIMITIVES)
    bare = program.clone()
    run_passes(bare, [Barriers(keep=False)])
    unguarded = bare.clone()
    run_passes(unguarded, without(TO_LINALG, "guard-double-reads"))
    assert unguarded_double_reads(unguarded), "the detector of this test should see what the pass finds"
    for candidate in (program, bare):
        run_passes(candidate, TO_LINALG)
        assert unguarded_double_reads(candidate) == []
