"""Tracing: arguments and results, numbered locations, printing and parsing."""

from pathlib import Path

import numpy as np
import pytest

from trainc.core.errors import ShapeError, VerifyError
from trainc.ir import scalar
from trainc.ir.builder import layer
from trainc.ir.mlir import functions, location_number, print_module, scope
from trainc.ir.ops.add import add
from trainc.ir.primitives import map_, matmul, reduce_sum, reshape
from trainc.ir.program import Argument, Port, Program, Result, ports, trace
from trainc.ir.tensor import Aval, Tensor
from trainc.ir.verify import verify


def _program() -> Program:
    def build(x: Tensor, w: Tensor) -> list[Result]:
        with layer("layers.3"), layer("mlp"):
            h = map_("bd,d->bd", lambda a, b: scalar.exp(-a) * b, x, w)
        return [Result("out", add(h, x)), Result("w", w, "grads")]

    program = Program()
    trace(program, "f", build, [Argument("x", Aval((2, 3))), Argument("w", Aval((3,)), "params")])
    return program


def test_printed_program_parses_to_the_same_text() -> None:
    program = _program()
    again = Program.parse(program.print())
    verify(again)
    assert again.print() == program.print()
    assert "train.map" in again.print()


def test_text_with_locations_round_trips_too() -> None:
    program = _program()
    text = program.print(debug_info=True)
    assert print_module(Program.parse(text).module, debug_info=True) == text


def test_two_tracings_give_the_same_bytes_and_no_path() -> None:
    first, second = (_program().print(debug_info=True) for _ in range(2))
    assert first == second
    assert __file__ not in first
    assert '"trainc":1:0' in first


def test_locations_lead_back_to_the_layer_and_line() -> None:
    program = _program()
    with scope():
        ops = [item.operation for item in functions(program.module)[0].regions[0].blocks[0].operations]
        sites = {op.name: program.table.get(location_number(op)) for op in ops}
    site = sites["train.map"]
    assert site is not None
    assert (site.op, site.layer, site.file) == ("map", "layers.3.mlp", __file__)
    assert "scalar.exp" in Path(site.file).read_text(encoding="utf-8").splitlines()[site.line - 1]
    assert sites["train.add"] is not None
    assert sites["train.add"].layer == ""


def test_ports_name_arguments_results_and_their_buffers() -> None:
    with scope():
        arguments, results = ports(_program().function("f"))
    assert arguments == [Port("x", Aval((2, 3)), None), Port("w", Aval((3,)), "params")]
    assert results == [Port("out", Aval((2, 3)), None), Port("w", Aval((3,)), "grads")]


def test_unknown_function_is_named() -> None:
    with pytest.raises(VerifyError, match=r"'g'.*\['f'\]"):
        _program().function("g")


def test_text_that_is_not_mlir_is_a_verify_error() -> None:
    with pytest.raises(VerifyError, match="parser said"):
        Program.parse("func.func @f( {")


def test_shape_error_names_op_operands_and_the_users_line() -> None:
    def build(x: Tensor) -> list[Result]:
        return [Result("y", matmul("ij,jk->ik", x, x))]

    with pytest.raises(ShapeError) as caught:
        trace(Program(), "f", build, [Argument("x", Aval((2, 3)))])
    text = str(caught.value)
    assert "train.matmul(a f32[2,3], b f32[2,3])" in text
    assert f"{__file__}:" in text


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda x: map_("ab,b->ab", lambda p, q: p + q, x, reshape(x, (6,))), "index 'b'.*3 and 6"),
        (lambda x: map_("ab->a", lambda p: p, x), "use reduce or matmul"),
        (lambda x: map_("aa->a", lambda p: p, x), "each letter once"),
        (lambda x: reduce_sum("abc->a", x), "rank 3"),
        (lambda x: reshape(x, (4,)), "6 elements"),
    ],
)
def test_bad_index_notation_and_shapes_are_refused(call: object, match: str) -> None:
    def build(x: Tensor) -> list[Result]:
        return [Result("y", call(x))]  # type: ignore[operator]

    with pytest.raises(ShapeError, match=match):
        trace(Program(), "f", build, [Argument("x", Aval((2, 3)))])


def test_emitting_outside_a_program_is_refused() -> None:
    program = _program()
    with scope():
        x = Tensor(program.function("f").regions[0].blocks[0].arguments[0])
        with pytest.raises(VerifyError, match="no program is being built"):
            add(x, x)


def test_scalars_refuse_mixed_dtypes() -> None:
    def build(x: Tensor) -> list[Result]:
        return [Result("y", map_("ab->ab", lambda a: a + scalar.index(0), x))]

    with pytest.raises(TypeError, match="f32 and i32"):
        trace(Program(), "f", build, [Argument("x", Aval((2, 3)))])


def test_interpreting_needs_the_arguments_shapes() -> None:
    from trainc.ir.interpret import interpret

    with pytest.raises(ShapeError, match=r"argument x should have shape \(2, 3\)"):
        interpret(_program(), "f", [np.zeros((3, 2)), np.zeros(3)])
