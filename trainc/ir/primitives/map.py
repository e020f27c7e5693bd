"""map: a scalar function of elements, over any permuted and broadcast reading of its operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trainc.core.errors import ShapeError
from trainc.ir.builder import next_location
from trainc.ir.mlir import mlir, tensor_type, to_attribute
from trainc.ir.registry import DIALECT, OpDef, register
from trainc.ir.scalar import Scalar
from trainc.ir.spec import index_sizes, parse_spec
from trainc.ir.tensor import Aval, Tensor


def _infer(*operands: Aval, spec: str, sizes: Sequence[int]) -> list[Aval]:
    found = index_sizes(spec, [o.shape for o in operands], dict(zip(parse_spec(spec).output, sizes, strict=True)))
    return [Aval(tuple(found[letter] for letter in parse_spec(spec).output))]


MAP = register(OpDef("map", ("operands*",), _infer, attributes=("spec", "sizes"), region=True))


def map_many(
    spec: str, function: Callable[..., Sequence[Scalar]], *operands: Tensor, sizes: Mapping[str, int] | None = None
) -> tuple[Tensor, ...]:
    """Apply a scalar function with several results to every element.

    Args:
        spec: Index notation; all results share the output term.
        function: Takes one Scalar an operand, returns the results' Scalars.
        operands: Tensors read by the notation.
        sizes: Sizes of output letters that no operand has.

    Returns:
        One tensor a result, its dtype that of the function's Scalar.
    """
    found = index_sizes(spec, [t.shape for t in operands], sizes)
    output = parse_spec(spec).output
    if parse_spec(spec).reduced:
        raise ShapeError(f"expected every index of a map in its output, got {spec!r}; use reduce or matmul")
    shape = [found[letter] for letter in output]
    loc = next_location("map")
    block, yielded = _region(function, operands, loc)
    op = mlir.Operation.create(
        DIALECT + "map",
        results=[tensor_type(shape, scalar.dtype) for scalar in yielded],
        operands=[t.value for t in operands],
        attributes={"spec": to_attribute(spec.replace(" ", "")), "sizes": to_attribute(tuple(shape))},
        regions=1,
        loc=loc,
    )
    block.append_to(op.regions[0])
    return tuple(Tensor(result) for result in op.results)


def map_(
    spec: str, function: Callable[..., Scalar], *operands: Tensor, sizes: Mapping[str, int] | None = None
) -> Tensor:
    """Apply a scalar function with one result to every element; see `map_many`."""
    return map_many(spec, lambda *scalars: (function(*scalars),), *operands, sizes=sizes)[0]


def elementwise(function: Callable[..., Scalar], *operands: Tensor) -> Tensor:
    """Apply a scalar function to operands of one shape."""
    letters = "abcdefgh"[: operands[0].rank]
    terms = ",".join([letters or "."] * len(operands))
    return map_(f"{terms}->{letters}", function, *operands)


def _region(
    function: Callable[..., Sequence[Scalar]], operands: Sequence[Tensor], loc: Any
) -> tuple[Any, list[Scalar]]:
    """Build the function's block in a detached op, since result types are known only afterwards."""
    scratch = mlir.Operation.create("train.scratch", regions=1, ip=False, loc=loc)
    types = [mlir.RankedTensorType(t.value.type).element_type for t in operands]
    block = scratch.regions[0].blocks.append(*types, arg_locs=[loc] * len(types))
    with mlir.InsertionPoint(block), loc:
        yielded = list(function(*(Scalar(argument) for argument in block.arguments)))
        mlir.Operation.create("train.yield", operands=[scalar.value for scalar in yielded])
    return block, yielded
