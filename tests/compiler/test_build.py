"""Flags of a module."""

from trainc.compiler.build import module_flags
from trainc.compiler.targets import find_target
from trainc.ir.primitives import elementwise
from trainc.ir.program import WHOLE, Argument, Program, Result, trace
from trainc.ir.tensor import Aval


def program_of(*shape, state):
    program = Program()

    def negate(x):
        return [Result(WHOLE, elementwise(lambda e: -e, x), state)]

    trace(program, "negate", negate, [Argument(WHOLE, Aval(shape), state)])
    return program


def test_only_modules_over_memory_of_any_length_take_it_from_any_element():
    target = find_target("cpu")
    assert module_flags(program_of(64, state="p"), target) == target.flags()
    assert module_flags(program_of(-1, state=None), target) == target.flags()
    (extra,) = set(module_flags(program_of(-1, state="p"), target)) - set(target.flags())
    assert extra.endswith("alignment=4")
