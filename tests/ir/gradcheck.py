"""Checks of layer ops, in float64: decomposition against reference, gradient against central differences.

A `build` function takes one Tensor an input and returns one Tensor or a tuple of them, for example
`lambda x, w: linear(x, w)`. Inputs are NumPy arrays: floats become f32 arguments, integers i32, booleans i1.
All arithmetic is float64, so what is compared are formulas, not roundings.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.ir.backward import backward
from trainc.ir.builder import emit
from trainc.ir.interpret import interpret
from trainc.ir.ops.add import add
from trainc.ir.primitives import elementwise, map_, reduce_sum, reshape
from trainc.ir.program import Argument, Program, Result, trace
from trainc.ir.registry import Call, OpDef, register
from trainc.ir.tensor import Aval, Tensor
from trainc.ir.verify import verify

Array = npt.NDArray[Any]
Build = Callable[..., Tensor | Sequence[Tensor]]

FUNCTION = "f"

# A sum of n terms in another order differs by about sqrt(n) * 2**-53 of the largest partial sum: 1e-14 for the
# sizes of these tests. 1e-12 leaves room for a chain of such sums and still sees any wrong term.
FORWARD_TOLERANCE = 1e-12

# The four-point stencil with step h is wrong by h**4/30 times the fifth derivative and by 2**-52/h in rounding:
# about 1e-12 each for h = 1e-3 and derivatives of order one. 1e-7 allows fifth derivatives of order 1e5.
GRADIENT_STEP = 1e-3
GRADIENT_TOLERANCE = 1e-7


def argument_avals(inputs: Sequence[Array]) -> list[Aval]:
    """Return the shapes and dtypes that the inputs have as arguments of a program."""
    kinds = {"f": "f32", "i": "i32", "b": "i1"}
    return [Aval(np.shape(x), kinds[np.asarray(x).dtype.kind]) for x in inputs]


def traced(build: Build, avals: Sequence[Aval]) -> Program:
    """Trace `build` into the function FUNCTION of a new, verified program."""
    program = Program()

    def function(*tensors: Tensor) -> list[Result]:
        return [Result(f"result{i}", t) for i, t in enumerate(_as_tuple(build(*tensors)))]

    trace(program, FUNCTION, function, [Argument(f"input{i}", aval) for i, aval in enumerate(avals)])
    verify(program)
    return program


def run(build: Build, inputs: Sequence[Array], *, primitives: bool = True, dtype: Any = np.float64) -> list[Array]:
    """Run `build` on the interpreter: its decomposition, or with primitives=False its references."""
    program = traced(build, argument_avals(inputs))
    return interpret(program, FUNCTION, inputs, dtype, primitives=primitives)


def check_forward(build: Build, inputs: Sequence[Array], *, tolerance: float = FORWARD_TOLERANCE) -> list[Array]:
    """Assert that decompositions equal references.

    Args:
        build: Function of Tensors.
        inputs: One array a Tensor.
        tolerance: Largest allowed error, relative to the largest element of each result.

    Returns:
        The results of the references.
    """
    expected = run(build, inputs, primitives=False)
    actual = run(build, inputs, primitives=True)
    for position, (want, got) in enumerate(zip(expected, actual, strict=True)):
        assert want.dtype == got.dtype, f"result {position}"
        scale = max(np.max(np.abs(want), initial=0.0), np.finfo(np.float64).tiny) if want.dtype.kind == "f" else 0.0
        np.testing.assert_allclose(got, want, rtol=0.0, atol=tolerance * scale, err_msg=f"result {position}")
    return expected


def check_gradients(
    build: Build,
    inputs: Sequence[Array],
    *,
    differentiable: Sequence[int],
    rng: np.random.Generator,
    step: float = GRADIENT_STEP,
    tolerance: float = GRADIENT_TOLERANCE,
) -> None:
    """Assert that the backward rules are the derivatives of the references, for random cotangents.

    Every floating-point result gets a cotangent; with several results also each one alone. Every differentiable
    input is moved along a random direction; asking for its gradient alone must give the same gradient.

    Args:
        build: Function of Tensors; all its results must be floats.
        inputs: One array a Tensor.
        differentiable: Positions of the inputs to differentiate with respect to.
        rng: Draws cotangents and directions.
        step: Step of the differences, along a direction of standard normal components.
        tolerance: Largest allowed error of <gradient, direction>, relative to the larger of its value and its
            root mean square over directions.
    """
    shapes = [x.shape for x in run(build, inputs, primitives=False)]
    subsets = [range(len(shapes))] + ([[i] for i in range(len(shapes))] if len(shapes) > 1 else [])
    for used in subsets:
        weights = [rng.standard_normal(shapes[i]) for i in used]
        loss = _weighted(build, len(inputs), used)
        together = run(_gradients(loss, differentiable), [*inputs, *weights])
        for position, gradient in zip(differentiable, together, strict=True):
            (alone,) = run(_gradients(loss, [position]), [*inputs, *weights])
            scale = np.max(np.abs(gradient), initial=0.0)
            np.testing.assert_allclose(
                alone, gradient, rtol=0.0, atol=FORWARD_TOLERANCE * scale, err_msg=f"input {position} alone"
            )
            direction = rng.standard_normal(gradient.shape)
            slope = _slope(loss, [*inputs, *weights], position, direction, step)
            product = float(np.sum(gradient * direction))
            size = max(abs(slope), float(np.linalg.norm(gradient)))
            assert np.isfinite(product), f"input {position}: gradient is not finite"
            assert abs(product - slope) <= tolerance * size, (
                f"input {position}, results {list(used)}: <gradient, v> = {product!r}, central difference = {slope!r}"
            )


def _slope(loss: Build, arrays: Sequence[Array], position: int, direction: Array, step: float) -> float:
    """Return the derivative of the references along a direction, by the four-point stencil."""
    program = traced(loss, argument_avals(arrays))

    def value(distance: float) -> float:
        moved = list(arrays)
        moved[position] = np.asarray(arrays[position], np.float64) + distance * direction
        return float(interpret(program, FUNCTION, moved, np.float64)[0])

    near, far = value(step) - value(-step), value(2 * step) - value(-2 * step)
    return (8.0 * near - far) / (12.0 * step)


def _weighted(build: Build, count: int, used: Sequence[int]) -> Build:
    """Return a function of inputs and cotangents: the sum of the used results times their cotangents."""

    def loss(*tensors: Tensor) -> Tensor:
        results = _as_tuple(build(*tensors[:count]))
        terms = [emit(_DOT, [results[i], weight])[0] for i, weight in zip(used, tensors[count:], strict=True)]
        total = terms[0]
        for term in terms[1:]:
            total = add(total, term)
        return total

    return loss


def _gradients(loss: Build, positions: Sequence[int]) -> Build:
    def function(*tensors: Tensor) -> Sequence[Tensor]:
        value = loss(*tensors)
        assert isinstance(value, Tensor)
        return backward(value, [tensors[i] for i in positions])

    return function


def _as_tuple(value: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    return (value,) if isinstance(value, Tensor) else tuple(value)


def _infer_dot(x: Aval, weight: Aval) -> list[Aval]:
    assert x == weight
    return [Aval((), x.dtype)]


def _decompose_dot(x: Tensor, weight: Tensor) -> Tensor:
    products = elementwise(lambda a, b: a * b, x, weight)
    return reduce_sum("a->", reshape(products, (prod(x.shape),)))


def _dot_backward(call: Call, d_results: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    x, weight = call.operands
    (d_value,) = d_results
    assert d_value is not None
    letters = "abcdefgh"[: x.rank]
    return map_(f"{letters},->{letters}", lambda w, d: w * d, weight, d_value), None


_DOT = register(
    OpDef(
        "gradcheck_dot",
        ("x", "weight"),
        _infer_dot,
        reference=lambda x, weight: np.sum(x * weight),
        decompose=_decompose_dot,
        backward=_dot_backward,
    )
)
