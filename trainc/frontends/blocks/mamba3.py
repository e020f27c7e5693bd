"""Mamba3Block: one Mamba-3 layer as a building block."""

from trainc.frontends.blocks.block import Block, Weights
from trainc.frontends.blocks.states import Mamba3State
from trainc.frontends.samba.config import SambaConfig


class Mamba3Block(Block[Mamba3State]):
    """A Mamba-3 layer, x + out_proj(mixer(in_proj(norm(x)))), with its weights (spec section 2).

    The widths inside are fixed: state 128, heads of 64, H = d_model / 32 of them, both norms' epsilon 1e-5. Every shape
    of batch is compiled when it is first used; `trainc.frontends.blocks.kernels` tells how to get along with few.

    Args:
        d_model: Width D, a multiple of 32.
        weights: float32 arrays by the names of `block_shapes`, or a list of them in that order; they are copied.
        numeric_mode: A numeric mode or None for the default.

    Attributes:
        names: Names of the weights, in order.
        shapes: Their shapes.
        numeric_mode: The numeric mode.

    Raises:
        ConfigError: `d_model` is impossible.
        ShapeError: A weight is missing or unknown, or a shape differs.
        DtypeError: A weight is not float32.
        NotFiniteError: A weight is not finite.
        UsageError: The numeric mode is unknown.
        UnsupportedError: The numeric mode is not available.
    """

    state_type = Mamba3State
    has_positions = False

    def __init__(self, d_model: int, weights: Weights, numeric_mode: str | None = None) -> None:
        super().__init__(SambaConfig(vocab=2, d_model=d_model, layers=("mamba3",)), weights, numeric_mode)

    def __repr__(self) -> str:
        return f"Mamba3Block(d_model={self.d_model}, numeric_mode={self.numeric_mode!r})"

    def allocate_state(self, batch_size: int) -> Mamba3State:
        """Returns a zero state.

        Args:
            batch_size: Sequences that are read side by side.

        Raises:
            ConfigError: `batch_size` is below 1.
        """
        return Mamba3State(batch_size, self.d_model)
