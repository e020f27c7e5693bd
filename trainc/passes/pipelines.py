"""The pass pipelines, as plain lists, and the passes by name."""

from collections.abc import Mapping, Sequence

from trainc.core.errors import UsageError
from trainc.core.modes import DEFAULT_MODE, DEFAULT_PRECISION
from trainc.core.state_table import StateTable
from trainc.ir.program import Program
from trainc.passes.add_rows_by_product import AddRowsByProduct
from trainc.passes.base import Pass
from trainc.passes.bind_buffers import BindBuffers
from trainc.passes.cpu_tiles import WIDEST
from trainc.passes.cse import CommonSubexpressionElimination
from trainc.passes.dce import DeadCodeElimination
from trainc.passes.decompose import Decompose
from trainc.passes.expand_random_bits import ExpandRandomBits
from trainc.passes.guard_double_reads import GuardDoubleReads
from trainc.passes.index_operands import IndexOperands
from trainc.passes.lower_barrier import LowerBarrier
from trainc.passes.lower_gather import LowerGather
from trainc.passes.lower_map import LowerMap
from trainc.passes.lower_matmul import LowerMatmul
from trainc.passes.lower_reduce import LowerReduce
from trainc.passes.lower_shape import LowerShape
from trainc.passes.narrow_products import NarrowProducts
from trainc.passes.pack_panels import PackPanels
from trainc.passes.part_reductions import PartReductions
from trainc.passes.relax_arithmetic import RelaxArithmetic
from trainc.passes.require_lowered import RequireLowered
from trainc.passes.runner import run_passes
from trainc.passes.split_reductions import SplitReductions
from trainc.passes.tile_cpu import TileCpu

TO_PRIMITIVES: tuple[Pass, ...] = (
    DeadCodeElimination(),
    Decompose(),
    DeadCodeElimination(),
    CommonSubexpressionElimination(),
)
"""Layer ops to primitives, each computed once and only if used."""

TO_LINALG: tuple[Pass, ...] = (
    ExpandRandomBits(),
    GuardDoubleReads(),
    LowerMap(),
    LowerReduce(),
    LowerMatmul(),
    LowerShape(),
    LowerGather(),
    LowerBarrier(),
)
"""Primitives to linalg, arith, math and tensor."""


BY_MODE: dict[str, tuple[Pass, ...]] = {"deterministic": (), "fast": (RelaxArithmetic(),)}
"""What each numeric mode adds after the lowering to linalg."""

PRIMITIVES_BY_PRECISION: dict[str, tuple[Pass, ...]] = {"f32": (PackPanels(),), "bf16": ()}
"""What each precision does to primitives: the compiler packs narrow products itself."""

LINALG_BY_PRECISION: dict[str, tuple[Pass, ...]] = {"f32": (), "bf16": (NarrowProducts(),)}
"""What each precision adds after the numeric mode."""

LINALG_BY_PRECISION_ON_GPUS: dict[str, tuple[Pass, ...]] = {"f32": (), "bf16": (NarrowProducts(packed=False),)}
"""The same for GPUs, whose products `PartReductions` has parted from their readers."""


def cpu_pipeline(
    tables: Mapping[str, StateTable],
    mode: str = DEFAULT_MODE,
    precision: str = DEFAULT_PRECISION,
    vector_bytes: int = WIDEST,
) -> list[Pass]:
    """Return the pipeline from a traced program to what iree-compile takes for a CPU.

    Args:
        tables: Layout of each flat buffer, by state name.
        mode: Numeric mode.
        precision: What the operands of large matrix products are rounded to.
        vector_bytes: Width of the CPU's vector registers.
    """
    return [
        *TO_PRIMITIVES,
        *PRIMITIVES_BY_PRECISION[precision],
        *TO_LINALG,
        *BY_MODE[mode],
        *LINALG_BY_PRECISION[precision],
        TileCpu(vector_bytes),
        BindBuffers(tables),
        RequireLowered(),
    ]


LEGAL_ON_GPUS: tuple[Pass, ...] = (
    ExpandRandomBits(),
    AddRowsByProduct(),
    SplitReductions(),
    IndexOperands(),
    PartReductions(),
)
"""What the compiler's ways to GPU code, and the drivers behind them, ask of primitives."""


def gpu_pipeline(
    tables: Mapping[str, StateTable], mode: str = DEFAULT_MODE, precision: str = DEFAULT_PRECISION
) -> list[Pass]:
    """Return the pipeline from a traced program to what iree-compile takes for a GPU.

    Args:
        tables: Layout of each flat buffer, by state name.
        mode: Numeric mode.
        precision: What the operands of large matrix products are rounded to.
    """
    return [
        *TO_PRIMITIVES,
        *LEGAL_ON_GPUS,
        *TO_LINALG,
        *BY_MODE[mode],
        *LINALG_BY_PRECISION_ON_GPUS[precision],
        BindBuffers(tables),
        RequireLowered(),
    ]


def pipeline_for(
    family: str,
    tables: Mapping[str, StateTable],
    mode: str = DEFAULT_MODE,
    precision: str = DEFAULT_PRECISION,
    vector_bytes: int = WIDEST,
) -> list[Pass]:
    """Return the pipeline of a family of targets.

    Args:
        family: "cpu", or a family of GPUs.
        tables: Layout of each flat buffer, by state name.
        mode: Numeric mode.
        precision: What the operands of large matrix products are rounded to.
        vector_bytes: Width of a CPU's vector registers.
    """
    if family == "cpu":
        return cpu_pipeline(tables, mode, precision, vector_bytes)
    return gpu_pipeline(tables, mode, precision)


PASSES: dict[str, Pass] = {
    item.name: item
    for item in (
        *TO_PRIMITIVES,
        PackPanels(),
        *TO_LINALG,
        AddRowsByProduct(),
        SplitReductions(),
        IndexOperands(),
        PartReductions(),
        RelaxArithmetic(),
        NarrowProducts(),
        TileCpu(),
        RequireLowered(),
    )
}
"""Every pass that needs no options, by name."""


def run_text(text: str, names: Sequence[str]) -> str:
    """Run named passes on a printed program.

    Args:
        text: MLIR text of the train dialect.
        names: Pass names in order.

    Returns:
        The program's text afterwards.

    Raises:
        UsageError: There is no pass of a name.
        VerifyError: The text is not a valid program, or a pass broke it.
    """
    unknown = [name for name in names if name not in PASSES]
    if unknown:
        raise UsageError(f"expected pass names among {', '.join(sorted(PASSES))}; got {', '.join(unknown)}")
    program = Program.parse(text)
    run_passes(program, [PASSES[name] for name in names])
    return program.print()
