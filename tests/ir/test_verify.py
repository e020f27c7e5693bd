"""The verifier: every rule of the dialect has a program that breaks it."""

import pytest

from trainc.core.errors import VerifyError
from trainc.ir.program import Program
from trainc.ir.registry import OpDef, lookup, op_names, register
from trainc.ir.tensor import Aval
from trainc.ir.verify import verify


def _wrap(body: str, result: str = "tensor<4xf32>") -> str:
    return f"func.func @f(%x: tensor<4x8xf32>) -> {result} {{\n{body}\nreturn %0 : {result}\n}}"


BROKEN = {
    "unknown op": (_wrap('%0 = "train.sum"(%x) : (tensor<4x8xf32>) -> tensor<4xf32>'), "train.sum; known:"),
    "missing attribute": (
        _wrap('%0 = "train.reduce"(%x) {spec = "ab->a"} : (tensor<4x8xf32>) -> tensor<4xf32>'),
        r"expected attributes \['kind', 'spec'\]",
    ),
    "extra attribute": (
        _wrap(
            '%0 = "train.reduce"(%x) {spec = "ab->a", kind = "sum", z = 1 : i64} : (tensor<4x8xf32>) -> tensor<4xf32>'
        ),
        "expected attributes",
    ),
    "wrong result shape": (
        _wrap('%0 = "train.reduce"(%x) {spec = "ab->b", kind = "sum"} : (tensor<4x8xf32>) -> tensor<4xf32>'),
        r"expected results f32\[8\], got f32\[4\]",
    ),
    "wrong result dtype": (
        _wrap(
            '%0 = "train.reduce"(%x) {spec = "ab->a", kind = "sum"} : (tensor<4x8xf32>) -> tensor<4xi32>',
            "tensor<4xi32>",
        ),
        "expected results",
    ),
    "unknown kind": (
        _wrap('%0 = "train.reduce"(%x) {spec = "ab->a", kind = "mean"} : (tensor<4x8xf32>) -> tensor<4xf32>'),
        "'mean'",
    ),
    "operand count": (
        _wrap('%0 = "train.matmul"(%x) {spec = "ab,bc->ac"} : (tensor<4x8xf32>) -> tensor<4xf32>'),
        "expected operands",
    ),
    "rank against notation": (
        _wrap('%0 = "train.reduce"(%x) {spec = "abc->a", kind = "sum"} : (tensor<4x8xf32>) -> tensor<4xf32>'),
        "rank 3",
    ),
    "slice outside": (
        _wrap(
            '%0 = "train.slice"(%x) {starts = array<i64: 0, 6>, sizes = array<i64: 4, 3>, strides = array<i64: 1, 1>} '
            ": (tensor<4x8xf32>) -> tensor<4x3xf32>",
            "tensor<4x3xf32>",
        ),
        "leave it",
    ),
    "region without yield": (
        _wrap(
            '%0 = "train.map"(%x) ({\n^bb0(%a: f32):\n%s = arith.addf %a, %a : f32\n}) '
            '{spec = "ab->ab", sizes = array<i64: 4, 8>} : (tensor<4x8xf32>) -> tensor<4x8xf32>',
            "tensor<4x8xf32>",
        ),
        "train.yield",
    ),
    "region argument dtype": (
        _wrap(
            '%0 = "train.map"(%x) ({\n^bb0(%a: i32):\n"train.yield"(%a) : (i32) -> ()\n}) '
            '{spec = "ab->ab", sizes = array<i64: 4, 8>} : (tensor<4x8xf32>) -> tensor<4x8xi32>',
            "tensor<4x8xi32>",
        ),
        "one block argument an operand",
    ),
    "region result dtype": (
        _wrap(
            '%0 = "train.map"(%x) ({\n^bb0(%a: f32):\n"train.yield"(%a) : (f32) -> ()\n}) '
            '{spec = "ab->ab", sizes = array<i64: 4, 8>} : (tensor<4x8xf32>) -> tensor<4x8xi32>',
            "tensor<4x8xi32>",
        ),
        "expected results of shape",
    ),
    "tensor op in a region": (
        _wrap(
            '%0 = "train.map"(%x) ({\n^bb0(%a: f32):\n%e = tensor.empty() : tensor<1xf32>\n'
            '"train.yield"(%a) : (f32) -> ()\n}) '
            '{spec = "ab->ab", sizes = array<i64: 4, 8>} : (tensor<4x8xf32>) -> tensor<4x8xf32>',
            "tensor<4x8xf32>",
        ),
        "scalar arith and math ops",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_program_is_refused(name: str) -> None:
    text, match = BROKEN[name]
    with pytest.raises(VerifyError, match=match):
        verify(Program.parse(text))


def test_a_valid_program_passes() -> None:
    text = _wrap('%0 = "train.reduce"(%x) {spec = "ab->a", kind = "sum"} : (tensor<4x8xf32>) -> tensor<4xf32>')
    verify(Program.parse(text))


def test_registration_checks_arity_and_attributes() -> None:
    with pytest.raises(VerifyError, match="infer should take operands"):
        register(OpDef("bad_arity", ("a", "b"), lambda a: [a]))
    with pytest.raises(VerifyError, match="reference should take attributes"):
        register(OpDef("bad_attribute", ("a",), lambda a, *, k: [a], attributes=("k",), reference=lambda a: a))
    with pytest.raises(VerifyError, match="registered already"):
        register(OpDef("add", ("a", "b"), lambda a, b: [a]))
    assert "bad_arity" not in op_names()


def test_every_op_is_a_primitive_or_decomposes_and_has_a_reference() -> None:
    twins = {name for name in op_names() if "_grad" in name}
    for name in set(op_names()) - twins:
        definition = lookup(name)
        if not name.startswith("gradcheck"):
            assert definition.region or definition.reference is not None, name
    for name in twins:
        assert lookup(name).decompose is not None, name
    assert lookup("reduce").infer(Aval((2, 3)), spec="ab->a", kind="sum") == [Aval((2,))]
