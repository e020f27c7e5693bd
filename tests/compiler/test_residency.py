"""Weights, gradients and moments stay where they are: no entry copies them, and every tensor starts on 256 bytes."""

import re
from collections.abc import Mapping

import pytest

from tests.samba.harness import run_config
from trainc.compiler.iree import run_iree_compile
from trainc.compiler.targets import find_target
from trainc.core.state_table import StateTable
from trainc.frontends.samba.tracing.entries import COMMON, MODULES, SELFTEST, TRAIN, state_tables
from trainc.ir.mlir import entry_block, functions, scope
from trainc.ir.program import Program, ports
from trainc.passes.pipelines import cpu_pipeline
from trainc.passes.runner import run_passes

# Every matrix and every vector of d_model or more is a whole number of 64 elements, as in any model of use.
RUN = run_config(
    {"vocab": 64, "d_model": 64, "layers": ["mamba3", "attention"], "n_heads": 2, "intermediate": 64, "dropout": 0.1},
    rows=2,
    length=8,
)
TABLES = state_tables(RUN)

_COPY = re.compile(r"stream\.cmd\.copy .*: !stream\.resource<(\w+)>\{%(\w+)\} -> !stream\.resource<(\w+)>\{%(\w+)\}")


def stream(program: Program, tables: Mapping[str, StateTable]) -> str:
    """Return a program as the compiler schedules it: dispatches, copies and fills, with the memory they touch."""
    lowered = program.clone()
    run_passes(lowered, cpu_pipeline(tables))
    flags = (*find_target("cpu").flags(), "--compile-to=stream")
    text = run_iree_compile(lowered.print(), flags, timeout_s=300, locations=None).decode()
    assert "stream.cmd.dispatch" in text, "this test reads the text of stream.cmd ops; the compiler writes others now"
    assert "stream.resource<external>" in text
    return text


def copies_of_callers_memory(text: str) -> tuple[list[str], list[str]]:
    """Return the copies out of and into memory that the caller owns ("external"), as text."""
    lines = [line.strip() for line in text.splitlines() if "stream.cmd.copy" in line]
    found = [(line, _COPY.match(line)) for line in lines]
    assert all(match for _, match in found), "a copy in another form than this test knows"
    ends = [(line, match[1], match[3]) for line, match in found if match is not None]
    return [x for x, source, _ in ends if source == "external"], [x for x, _, target in ends if target == "external"]


def test_gradients_copies_no_tensor() -> None:
    """Tensors that do not fill whole 64 elements (one number a head) are padded with zeros and copied: 256 bytes."""
    out_of, into = copies_of_callers_memory(stream(MODULES[TRAIN](RUN), TABLES))
    assert out_of == []
    padded = [tensor.name for tensor in TABLES["grads"].tensors if tensor.size % 64]
    assert padded == ["layers.0.dt_bias", "layers.0.D"]
    assert len(into) <= len(padded), into
    assert all("%c256 :" in line for line in into), into


def test_accumulate_norms_and_update_copy_nothing() -> None:
    assert copies_of_callers_memory(stream(MODULES[COMMON](RUN), TABLES)) == ([], [])


def test_a_copy_is_seen() -> None:
    """What this file looks for: tensors cut out of one flat argument, and results joined before they are written."""
    text = """
    func.func @f(%b: !hal.buffer) -> !hal.buffer_view {
      %c0 = arith.constant 0 : index
      %c4096 = arith.constant 4096 : index
      %flat = hal.tensor.import %b : !hal.buffer -> tensor<1024xf32>
      %x = tensor.extract_slice %flat[64] [256] [1] : tensor<1024xf32> to tensor<256xf32>
      %y = tensor.extract_slice %flat[512] [256] [1] : tensor<1024xf32> to tensor<256xf32>
      %joined = tensor.concat dim(0) %x, %y : (tensor<256xf32>, tensor<256xf32>) -> tensor<512xf32>
      %out = hal.tensor.export %joined : tensor<512xf32> -> !hal.buffer_view
      return %out : !hal.buffer_view
    }
    """
    flags = (*find_target("cpu").flags(), "--compile-to=stream")
    shown = run_iree_compile(text, flags, timeout_s=300, locations=None).decode()
    out_of, into = copies_of_callers_memory(shown)
    assert len(out_of) == len(into) == 2


@pytest.mark.parametrize("module", [name for name in MODULES if name != SELFTEST])
def test_every_tensor_of_a_state_starts_on_256_bytes(module: str) -> None:
    """Code for a CPU reads and writes whole vectors: a tensor elsewhere crashes the process."""
    program = MODULES[module](RUN)
    with scope():
        sides = [side for function in functions(program.module) for side in ports(function)]
        bound = sum(port.state is not None for side in sides for port in side)
    lowered = program.clone()
    run_passes(lowered, cpu_pipeline(TABLES))
    with scope():
        spans = [
            op
            for function in functions(lowered.module)
            for op in entry_block(function).operations
            if op.operation.name in ("hal.buffer.subspan", "hal.buffer_view.create")  # the second: written in place
        ]
        starts = [span.operands[1].owner.attributes["value"].value for span in spans]
    assert len(starts) == bound > 0
    assert [start % 256 for start in starts] == [0] * bound
