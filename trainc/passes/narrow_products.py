"""narrow-products: what the precision "bf16" changes: the operands of large matrix products are rounded to bfloat16.

Products and sums stay in float32, and so do results, weights and everything else. On CPUs a mark on the product asks
the compiler to pack its operands into tiles first: only in that form does it use the CPU's bfloat16 instruction
(AVX512_BF16). GPUs have matrix instructions for the product as it is. docs/iree-notes.md has the measurements.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from trainc.ir.mlir import arith, element_type, entry_block, functions, linalg, mlir, scope, shape_of, tensor_type
from trainc.ir.program import Program
from trainc.passes.linalg_build import BARRIER, affine_maps, compute_barrier, empty, iterators
from trainc.passes.tile_cpu import is_contraction

PACKED = "iree.opt.data_tiling"
"""Attribute of a product whose operands the compiler packs; it takes the flags of `trainc.compiler.build`, too."""

_LEAST_SIDE = 32  # with a shorter side there is too little work for each packed element


@dataclass(frozen=True)
class NarrowProducts:
    """Round the operands of every large product without batch loops to bfloat16; accumulate in float32.

    Attributes:
        packed: Whether the compiler packs the operands.
    """

    packed: bool = True
    name: ClassVar[str] = "narrow-products"

    def run(self, program: Program) -> None:
        """Rewrite the program in place."""
        with scope():
            for function in functions(program.module):
                for item in list(entry_block(function).operations):
                    if is_contraction(item.operation) and _is_large(item.operation):
                        _narrow(item.operation, self.packed)
                        if self.packed:
                            item.operation.attributes[PACKED] = mlir.UnitAttr.get()
                            _keep_apart(item.operation)


def _is_large(op: Any) -> bool:
    sides = [size for position in (0, 1) for size in shape_of(op.operands[position])]
    return len(op.attributes["iterator_types"]) == 3 and len(sides) == 4 and min(sides) >= _LEAST_SIDE


def _narrow(op: Any, packed: bool) -> None:
    block = op.regions[0].blocks[0]
    for position in (0, 1):
        matrix = op.operands[position]
        with mlir.InsertionPoint(op), op.location:
            op.operands[position] = _rounded(_within_barrier(matrix) if packed else matrix)
        element = block.arguments[position]
        element.set_type(element_type("bf16"))
        with mlir.InsertionPoint(block.operations[position]), op.location:
            widen = arith.ExtFOp(element_type("f32"), element)
        element.replace_all_uses_except(widen.result, widen.operation)


def _within_barrier(matrix: Any) -> Any:
    """Return what a barrier of this product alone holds back: a transposed weight is rounded and packed in one pass."""
    if isinstance(matrix.owner, mlir.Block) or matrix.owner.name != BARRIER or len(list(matrix.uses)) > 1:
        return matrix
    return matrix.owner.operands[0]


def _rounded(matrix: Any) -> Any:
    """Return a matrix rounded to bfloat16, to nearest, ties to even."""
    type_ = tensor_type(shape_of(matrix), "bf16")
    same = affine_maps(["ab", "ab"], "ab")
    generic = linalg.GenericOp([type_], [matrix], [empty(type_, [matrix])], same, iterators(2, 0))
    types = element_type("f32"), element_type("bf16")
    block = generic.regions[0].blocks.append(*types, arg_locs=[generic.location] * 2)
    with mlir.InsertionPoint(block):
        linalg.YieldOp([arith.truncf(types[1], block.arguments[0])])
    return generic.results[0]


def _keep_apart(op: Any) -> None:
    """Keep readers from being fused into a packed product: with several readers or results the compiler fails."""
    (result,) = op.results
    with mlir.InsertionPoint.after(op), op.location:
        kept = compute_barrier(result)
    result.replace_all_uses_except(kept, kept.owner.operation)
