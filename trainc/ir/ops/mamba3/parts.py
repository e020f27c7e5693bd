"""The pieces of u: z | x | B | C | dd_dt | dd_A | trap | angle, in this order (spec section 2)."""

from dataclasses import dataclass

from trainc.ir.ops.mamba3.channels import to_blocks
from trainc.ir.ops.mamba3.sizes import ANGLES, HEAD, STATE, Sizes
from trainc.ir.primitives import barrier, pad_axis, reshape, split
from trainc.ir.tensor import Tensor


@dataclass(frozen=True)
class Parts:
    """The pieces of u, padded to whole chunks.

    Attributes:
        z: (B, C, Q, H, P).
        x: (B, C, Q, H, P).
        bc: (B*C*Q, S, N) in block order.
        dd_dt: (B, C, Q, H).
        dd_a: (B, C, Q, H).
        trap: (B, C, Q, H).
        angle: (B, C, Q, R).
    """

    z: Tensor
    x: Tensor
    bc: Tensor
    dd_dt: Tensor
    dd_a: Tensor
    trap: Tensor
    angle: Tensor


def parts(u: Tensor, sizes: Sizes) -> Parts:
    """Cut u (B, L, W) into its pieces, padded with rows of zeros."""
    padded = pad_axis(u, 1, 0, sizes.padded - sizes.length)
    z, x, bc, dd_dt, dd_a, trap, angle = split(padded, 2, sizes.widths)
    rows, heads, count = sizes.token_shape, sizes.heads, sizes.batch * sizes.padded
    z, x = (reshape(part, (*rows, heads, HEAD)) for part in (z, x))
    dd_dt, dd_a, trap = (reshape(part, (*rows, heads)) for part in (dd_dt, dd_a, trap))
    bc = reshape(to_blocks(reshape(bc, (count, 2, STATE))), (count, 2, STATE))
    return Parts(z, x, barrier(bc), dd_dt, dd_a, trap, reshape(angle, (*rows, ANGLES)))
