"""What the optimizer ops share: flat buffers of one shape and a scalar for each name of a list."""

from collections.abc import Mapping, Sequence

from trainc.core.errors import ShapeError
from trainc.ir.ops.expect import expect_dtype, expect_float, expect_rank, expect_shape
from trainc.ir.tensor import Aval, Tensor


def expect_step(buffers: Mapping[str, Aval], names: Sequence[str], coefficients: Sequence[Aval]) -> None:
    """Raise unless all buffers have the shape (N,) and dtype of the first, and coefficients are its scalars.

    Raises:
        ShapeError: A shape, or the number of coefficients, does not fit.
        DtypeError: A dtype does not fit.
    """
    lead_name, lead = next(iter(buffers.items()))
    expect_float(lead_name, lead)
    expect_rank(lead_name, lead, 1, "(N,)")
    for name, buffer in buffers.items():
        expect_dtype(name, buffer, lead.dtype)
        expect_shape(name, buffer, lead.shape)
    if len(coefficients) != len(names):
        raise ShapeError(f"expected the coefficients {names}, got {len(coefficients)} of them")
    for name, coefficient in zip(names, coefficients, strict=True):
        expect_dtype(name, coefficient, lead.dtype)
        expect_shape(name, coefficient, ())


def in_order(op: str, names: Sequence[str], coefficients: Mapping[str, Tensor]) -> list[Tensor]:
    """Return coefficients in the order of their names.

    Raises:
        ShapeError: One is missing or unknown.
    """
    if set(coefficients) != set(names):
        raise ShapeError(f"train.{op}: expected the coefficients {tuple(names)}, got {tuple(coefficients)}")
    return [coefficients[name] for name in names]
