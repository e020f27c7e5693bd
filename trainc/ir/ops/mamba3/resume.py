"""The carried state: from what a caller keeps to the state of the chunked form, and back.

    S_0 = h + dt_0 (1 - lam_0) v_last k_last^T

After the last row that counts every dt is 0, so its scale is its gamma alone and the state at the end is h itself.
"""

from trainc.ir.ops.mamba3.channels import from_blocks, to_blocks
from trainc.ir.ops.mamba3.forward import Forward, State
from trainc.ir.ops.mamba3.parts import Parts
from trainc.ir.ops.mamba3.sizes import ANGLES, BLOCKS, CHUNK, HEAD, STATE, Sizes
from trainc.ir.ops.mamba3.sums import row
from trainc.ir.ops.mamba3.tokens import Tokens
from trainc.ir.primitives import barrier, gather, map_, reshape
from trainc.ir.tensor import Tensor


def starting_state(token: Tokens, sizes: Sizes, theta: Tensor, h: Tensor, k_last: Tensor, v_last: Tensor) -> State:
    """Return the state that the first chunk starts from.

    Args:
        token: Per-token quantities.
        sizes: Of the mixer.
        theta: (B, H, R).
        h: (B, H, P, N).
        k_last: (B, H, N).
        v_last: (B, H, P).
    """
    lead = reshape(row(row(token.lead, 1, 0), 1, 0), (sizes.pairs,))
    h_YPN = reshape(to_blocks(h), (sizes.pairs, HEAD, STATE))
    k_YN = reshape(to_blocks(k_last), (sizes.pairs, STATE))
    s = map_(
        "ypn,y,yp,yn->ynp",
        lambda h, weight, v, k: h + weight * v * k,
        barrier(h_YPN),
        lead,
        reshape(v_last, (sizes.pairs, HEAD)),
        k_YN,
    )
    return State(theta, s)


def next_state(part: Parts, done: Forward, sizes: Sizes, length: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return theta, h, k_last and v_last after row length - 1, shaped as `starting_state` takes them."""
    pair = (sizes.batch, sizes.heads)
    assert done.between is not None
    h_YPN = barrier(map_("ynp->ypn", lambda e: e, done.between.last(sizes)))
    h = from_blocks(reshape(h_YPN, (*pair, HEAD, BLOCKS, ANGLES)))
    position = map_(".->", lambda n: n - 1, length)
    rows = sizes.batch, sizes.padded, sizes.inner
    v_last = reshape(gather(reshape(part.x, rows), position, axis=1), (*pair, HEAD))
    k_tile = reshape(done.k, (*sizes.tile_shape, BLOCKS, ANGLES))
    if sizes.chunks == 1:
        k_row = gather(k_tile, position, axis=3) if sizes.chunk > 1 else row(k_tile, 3, 0)
    else:
        chunk = map_(".->", lambda n: n >> CHUNK.bit_length() - 1, position)
        in_chunk = map_(".->", lambda n: n & CHUNK - 1, position)
        k_row = gather(gather(k_tile, chunk, axis=0), in_chunk, axis=2)
    k_row = reshape(k_row, (*pair, BLOCKS, ANGLES))
    return done.turn.theta_last, h, from_blocks(k_row), v_last
