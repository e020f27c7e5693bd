"""The runner, the pipelines and the last pass: what is not valid is refused by name."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from trainc.core.errors import UsageError, VerifyError
from trainc.ir.mlir import entry_block, functions, scope
from trainc.ir.program import Program
from trainc.passes.base import Pass
from trainc.passes.dce import DeadCodeElimination
from trainc.passes.pipelines import PASSES, cpu_pipeline, run_text
from trainc.passes.require_lowered import RequireLowered
from trainc.passes.rewrite import rewrite_ops
from trainc.passes.runner import run_passes

TEXT = """func.func @f(%x: tensor<4x8xf32>) -> tensor<4xf32> {
  %0 = "train.reduce"(%x) {kind = "sum", spec = "ab->a"} : (tensor<4x8xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}"""


@dataclass(frozen=True)
class Breaks:
    """A pass that leaves an invalid program."""

    name: ClassVar[str] = "breaks"

    def run(self, program: Program) -> None:
        with scope():
            for function in functions(program.module):
                op = next(iter(entry_block(function).operations)).operation
                del op.attributes["kind"]


def test_a_pass_that_breaks_the_program_is_caught() -> None:
    with pytest.raises(VerifyError, match="expected attributes"):
        run_passes(Program.parse(TEXT), [Breaks()])


def test_every_pass_is_dumped_in_order() -> None:
    seen: list[str] = []
    run_passes(
        Program.parse(TEXT), list(PASSES.values())[:4], lambda name, text: seen.append(f"{name} {len(text) > 0}")
    )
    assert seen == [f"{name} True" for name in list(PASSES)[:4]]


def test_unknown_pass_names_are_listed() -> None:
    with pytest.raises(UsageError, match=r"expected pass names among .*dce.*; got dxe"):
        run_text(TEXT, ["dce", "dxe"])


def test_a_rewrite_of_an_unregistered_name_is_refused() -> None:
    with pytest.raises(VerifyError, match=r"train\.mapp"):
        rewrite_ops(Program.parse(TEXT), {"mapp": lambda op: []})


def test_a_train_op_left_over_is_refused_by_name() -> None:
    with pytest.raises(VerifyError, match=r"got train\.reduce"):
        run_passes(Program.parse(TEXT), [RequireLowered()])


def test_the_pipeline_leaves_nothing_to_refuse() -> None:
    program = Program.parse(TEXT)
    run_passes(program, cpu_pipeline({}))
    assert "train." not in program.print()
    assert "linalg.generic" in program.print()


def test_passes_are_frozen_and_named_once() -> None:
    pipeline = cpu_pipeline({})
    assert all(isinstance(item, Pass) for item in pipeline)
    assert isinstance(DeadCodeElimination(), Pass)
    with pytest.raises(AttributeError):
        pipeline[0].name = "x"  # type: ignore[misc]
