"""What blocks compile on demand: one kernel for each entry and shape of batch, the 32 used last staying loaded.

A kernel holds no weights, so all blocks of one shape share it. To compile little, use few shapes: calls with a state
are compiled for 1 token, and for 16, 32, 64, ... tokens, and any number in between runs in the next larger one.
"""

from functools import lru_cache
from typing import TYPE_CHECKING

from trainc.frontends.samba.layer_state import StateNames
from trainc.frontends.samba.model_kernel import ModelKernel
from trainc.runtime.program import Program

if TYPE_CHECKING:
    from trainc.frontends.tracing.artifact import Source

MAX_LOADED = 32
"""Kernels that stay loaded, over all blocks; the least recently used ones go."""

FORWARD, BACKWARD, CONTINUE = "forward", "backward", "continue"
PARAMS = "params"
STATE = StateNames("state_in", "state_out", "state_cache", table="state", cache_table="cache")


class BlockKernel(ModelKernel):
    """A kernel of a block: its model has one layer, its entries are "forward", "backward" and "continue"."""

    @property
    def kind(self) -> str:
        """Kind of the layer."""
        return self.config.layers[0]

    @property
    def name(self) -> str:
        """A name for people."""
        return f"block-{self.kind}-{self.entry}-{self.rows}x{self.tokens}"

    def _source(self) -> "Source":
        from trainc.frontends.blocks.tracing.graph import block_source

        return block_source(self)


@lru_cache(maxsize=MAX_LOADED)
def load_block(kernel: BlockKernel) -> Program:
    """Load a kernel, compiling it if that was never done on this machine.

    Raises:
        CompileError: It does not compile.
        UnsupportedError: It was not compiled before and this installation has no compiler.
    """
    return kernel.load()
