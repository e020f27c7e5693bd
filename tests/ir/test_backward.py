"""ir.backward: only what is needed, contributions in order, refusals."""

import numpy as np
import pytest

from trainc.core.errors import ShapeError, UnsupportedError
from trainc.ir.backward import backward
from trainc.ir.interpret import interpret
from trainc.ir.mlir import entry_block, scope
from trainc.ir.ops.add import add
from trainc.ir.ops.linear import linear
from trainc.ir.ops.swiglu import swiglu
from trainc.ir.primitives import reduce_sum, reshape
from trainc.ir.program import Argument, Program, Result, trace
from trainc.ir.tensor import Aval, Tensor


def _traced(build: object, *shapes: tuple[int, ...]) -> Program:
    program = Program()
    arguments = [Argument(f"a{i}", Aval(shape)) for i, shape in enumerate(shapes)]

    def run(*tensors: Tensor) -> list[Result]:
        return [Result(f"r{i}", t) for i, t in enumerate(build(*tensors))]  # type: ignore[operator]

    trace(program, "f", run, arguments)
    return program


def _names(program: Program) -> list[str]:
    with scope():
        return [item.operation.name for item in entry_block(program.function("f")).operations]


def test_a_value_used_twice_gets_both_contributions() -> None:
    def build(x: Tensor, d: Tensor) -> list[Tensor]:
        return backward(add(x, reshape(reshape(x, (6,)), (2, 3))), [x], d)

    d = np.arange(6.0).reshape(2, 3)
    (found,) = interpret(_traced(build, (2, 3), (2, 3)), "f", [np.ones((2, 3)), d])
    np.testing.assert_array_equal(found, 2 * d)


def test_a_frozen_weight_costs_nothing() -> None:
    def build(x: Tensor, w: Tensor, d: Tensor) -> list[Tensor]:
        return backward(linear(x, w), [x], d)

    def both(x: Tensor, w: Tensor, d: Tensor) -> list[Tensor]:
        return backward(linear(x, w), [x, w], d)

    shapes = ((5, 3), (4, 3), (5, 4))
    frozen = interpret(_traced(build, *shapes), "f", [np.ones(s) for s in shapes])
    trained = interpret(_traced(both, *shapes), "f", [np.ones(s) for s in shapes])
    np.testing.assert_array_equal(frozen[0], trained[0])
    from trainc.passes.dce import DeadCodeElimination
    from trainc.passes.decompose import Decompose

    counts = []
    for function in (build, both):
        program = _traced(function, *shapes)
        for item in (Decompose(), DeadCodeElimination()):
            item.run(program)
        counts.append(_names(program).count("train.matmul"))
    assert counts == [1, 2]


def test_an_operand_the_output_does_not_depend_on_gets_zeros() -> None:
    def build(x: Tensor, y: Tensor, d: Tensor) -> list[Tensor]:
        return backward(add(x, x), [x, y], d)

    found = interpret(_traced(build, (2,), (3,), (2,)), "f", [np.ones(2), np.ones(3), np.ones(2)])
    np.testing.assert_array_equal(found[1], np.zeros(3))


def test_ops_off_the_path_are_not_differentiated() -> None:
    def build(x: Tensor, y: Tensor, d: Tensor) -> list[Tensor]:
        swiglu(y, y)
        return backward(add(x, x), [x], d)

    assert "train.swiglu_grad" not in _names(_traced(build, (2,), (2,), (2,)))


def test_an_op_without_a_rule_is_named() -> None:
    with pytest.raises(UnsupportedError, match=r"train.reduce has no backward rule; at reduce .*test_backward.py"):
        _traced(lambda x: backward(reduce_sum("a->", x), [x]), (2,))


def test_a_vector_output_needs_a_cotangent() -> None:
    with pytest.raises(ShapeError, match="cotangent"):
        _traced(lambda x: backward(add(x, x), [x]), (2,))
