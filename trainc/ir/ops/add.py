"""add: the sum of two tensors of one shape (residual connections, gradients of a value used twice)."""

from collections.abc import Sequence

from trainc.core.errors import ShapeError
from trainc.ir.builder import emit
from trainc.ir.primitives import elementwise
from trainc.ir.registry import Call, OpDef, register
from trainc.ir.tensor import Aval, Tensor


def _infer(a: Aval, b: Aval) -> list[Aval]:
    if a != b:
        raise ShapeError(f"expected two tensors of one shape and dtype, got {a} and {b}")
    return [a]


def _backward(call: Call, d_results: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    (d_out,) = d_results
    return d_out, d_out


ADD = register(
    OpDef(
        "add",
        ("a", "b"),
        _infer,
        reference=lambda a, b: a + b,
        decompose=lambda a, b: elementwise(lambda x, y: x + y, a, b),
        backward=_backward,
    )
)


def add(a: Tensor, b: Tensor) -> Tensor:
    """Return a + b, both of one shape."""
    return emit(ADD, [a, b])[0]
