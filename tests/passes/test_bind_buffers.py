"""bind-buffers: the calling convention of entries, and its refusals."""

import re

import pytest

from trainc.core.errors import VerifyError
from trainc.core.state_table import StateTable
from trainc.ir.mlir import DYNAMIC, scope
from trainc.ir.primitives import map_, matmul, put_rows
from trainc.ir.program import WHOLE, Argument, Program, Result, ports, trace
from trainc.ir.tensor import Aval, Tensor
from trainc.passes.bind_buffers import BindBuffers, has_length, states_of
from trainc.passes.pipelines import TO_LINALG, TO_PRIMITIVES
from trainc.passes.runner import run_passes

TABLE = StateTable.build("params", [("a", (3, 5)), ("b", (7,))])


def _lowered(program: Program, **tables: StateTable) -> str:
    run_passes(program, [*TO_PRIMITIVES, *TO_LINALG, BindBuffers(tables)])
    return program.print()


def _entry(shape: tuple[int, ...] = (3, 5), name: str = "a") -> Program:
    def build(a: Tensor, x: Tensor, scale: Tensor) -> list[Result]:
        scaled = map_("ij,.->ij", lambda p, s: p * s, a, scale)
        return [Result("y", matmul("ij,kj->ik", x, a)), Result(name, scaled, "grads")]

    program = Program()
    arguments = [Argument(name, Aval(shape), "params"), Argument("x", Aval((2, 5))), Argument("scale", Aval(()))]
    trace(program, "f", build, arguments)
    return program


def test_states_come_first_then_plain_arguments_and_scalars() -> None:
    text = _lowered(_entry(), params=TABLE, grads=TABLE)
    signature = next(line for line in text.splitlines() if "func.func @f" in line)
    kinds = re.findall(r"%arg\d+: ([^ {,)]+)", signature)
    assert kinds == ["!hal.buffer", "!hal.buffer", "tensor<2x5xf32>", "f32"]
    assert "(tensor<2x3xf32>" in signature.split("->")[1]


def test_tensors_are_cut_out_and_written_back_without_slices_of_a_flat_tensor() -> None:
    text = _lowered(_entry(), params=TABLE, grads=TABLE)
    assert text.count("hal.buffer.subspan") == 2
    assert "hal.tensor.import" in text
    assert "hal.tensor.alias" in text
    assert "extract_slice" not in text


def test_a_written_tensor_fills_its_span_with_zeros() -> None:
    text = _lowered(_entry(), params=TABLE, grads=TABLE)
    assert "tensor.pad" in text
    assert "tensor<15xf32> to tensor<64xf32>" in text


def test_offsets_are_those_of_the_table_in_bytes() -> None:
    def build(b: Tensor) -> list[Result]:
        return [Result("b", map_("i->i", lambda p: p + p, b), "grads")]

    program = Program()
    trace(program, "f", build, [Argument("b", Aval((7,)), "params")])
    text = _lowered(program, params=TABLE, grads=TABLE)
    assert TABLE["b"].offset == 64
    assert "arith.constant 256 : index" in text
    assert "arith.constant 28 : index" in text  # what is read ends with the tensor; what is written fills its span


def test_rows_put_into_an_argument_are_not_written_back() -> None:
    def build(a: Tensor, rows: Tensor, start: Tensor) -> list[Result]:
        new = put_rows(a, rows, start, axis=0)
        return [Result("y", map_("ij->ij", lambda e: e + e, new)), Result("a", new, state)]

    def text(program: Program) -> str:
        trace(program, "f", build, [Argument("a", Aval((3, 5)), "params"), Argument("rows", Aval((1, 5))), start])
        return _lowered(program, params=TABLE, grads=TABLE)

    start = Argument("start", Aval((), "i32"))
    state = "params"
    in_place = text(Program())
    assert "hal.tensor.alias" not in in_place
    assert "hal.buffer_view.create" in in_place
    state = "grads"
    assert "hal.tensor.alias" in text(Program())


def test_memory_of_dynamic_length_gets_a_length_argument() -> None:
    def build(p: Tensor, g: Tensor) -> list[Result]:
        return [Result(WHOLE, map_("n,n->n", lambda a, b: a - b, p, g), "p")]

    program = Program()
    trace(program, "f", build, [Argument(WHOLE, Aval((DYNAMIC,)), state) for state in ("p", "g")])
    with scope():
        assert has_length(program.function("f"))
        assert states_of(program.function("f")) == ["p", "g"]
    text = _lowered(program)
    assert "%arg2: i32" in text
    assert "hal.buffer.subspan" not in text
    assert "tensor<?xf32>" in text


def test_round_trip_of_ports_after_binding() -> None:
    program = _entry()
    _lowered(program, params=TABLE, grads=TABLE)
    with scope():
        names = [a["trainc.name"].value for a in program.function("f").arg_attrs]
    assert names == ["params", "grads", "x", "scale"]


@pytest.mark.parametrize(
    ("program", "tables", "match"),
    [
        (_entry(), {"params": TABLE}, "table for state 'grads'"),
        (_entry(name="z"), {"params": TABLE, "grads": TABLE}, "got 'z'"),
        (
            _entry(),
            {"params": StateTable.build("params", [("a", (5, 3))]), "grads": TABLE},
            r"has shape \(5, 3\), the program's is \(3, 5\)",
        ),
    ],
)
def test_what_does_not_fit_the_table_is_refused(program: Program, tables: dict[str, StateTable], match: str) -> None:
    with pytest.raises(VerifyError, match=match):
        _lowered(program, **tables)


def test_a_traced_function_keeps_its_names() -> None:
    with scope():
        arguments, results = ports(_entry().function("f"))
    assert [p.name for p in arguments] == ["a", "x", "scale"]
    assert [p.state for p in results] == [None, "grads"]
