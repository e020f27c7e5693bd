"""Sizes and constants of a Mamba-3 mixer, and its cut into chunks and tiles.

Shapes, in all files of this package: B batch, L length, H heads, P = 64 head dim, N = 128 state dim, R = 32 angles,
J = 4 blocks of R channels, I = 64*H inner width, C chunks of Q rows, X = C*B*H tiles in this order, Y = B*H,
W = 2*I + 2*N + 3*H + R width of u, S = 2 for (B, C).
"""

from dataclasses import dataclass

HEAD = 64
STATE = 128
ANGLES = 32
BLOCKS = STATE // ANGLES
CHUNK = 64
NORM_EPS = 1e-5
DECAY_FLOOR = 1e-4


@dataclass(frozen=True)
class Sizes:
    """What the layout of every tensor follows from.

    Attributes:
        batch: B.
        length: L, rows of the sequence before padding.
        heads: H.
    """

    batch: int
    length: int
    heads: int

    @property
    def inner(self) -> int:
        """I, the width of z and of x."""
        return HEAD * self.heads

    @property
    def width(self) -> int:
        """W, the width of u."""
        return sum(self.widths)

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths of z, x, B with C, dd_dt, dd_A, trap and angle, in the order they have in u."""
        return (self.inner, self.inner, 2 * STATE, self.heads, self.heads, self.heads, ANGLES)

    @property
    def chunk(self) -> int:
        """Q, rows of one chunk; a short sequence is one chunk of its own length."""
        return min(CHUNK, self.length)

    @property
    def chunks(self) -> int:
        """C, chunks of the padded sequence."""
        return -(-self.length // self.chunk)

    @property
    def padded(self) -> int:
        """C*Q, rows after padding to whole chunks."""
        return self.chunks * self.chunk

    @property
    def pairs(self) -> int:
        """Y, the number of (batch, head) pairs."""
        return self.batch * self.heads

    @property
    def tiles(self) -> int:
        """X, the number of (chunk, batch, head) tiles."""
        return self.chunks * self.pairs

    @property
    def token_shape(self) -> tuple[int, int, int]:
        """(B, C, Q), the leading dimensions of per-token tensors."""
        return self.batch, self.chunks, self.chunk

    @property
    def tile_shape(self) -> tuple[int, int, int, int]:
        """(C, B, H, Q), the leading dimensions of tensors in tile order."""
        return self.chunks, self.batch, self.heads, self.chunk
