"""One entry of a model, compiled for one shape of batch: what stacks and blocks load on demand."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainc.frontends.kernels import open_kernel
from trainc.frontends.samba.config import SambaConfig
from trainc.runtime.program import Program

if TYPE_CHECKING:
    from trainc.frontends.tracing.artifact import Source


@dataclass(frozen=True)
class ModelKernel:
    """A kernel of a model; the subclasses name and trace it.

    Attributes:
        config: The model.
        mode: Numeric mode.
        entry: Its entry.
        rows: Rows of the batch.
        tokens: Tokens of a row.
        capacity: Positions of the state's caches, for an entry that has a state.
    """

    config: SambaConfig
    mode: str
    entry: str
    rows: int = 1
    tokens: int = 1
    capacity: int = 1

    @property
    def name(self) -> str:
        """A name for people."""
        raise NotImplementedError

    def load(self) -> Program:
        """Load the kernel, compiling it if that was never done on this machine.

        Raises:
            ConfigError: The model cannot have such a shape.
            CompileError: It does not compile.
            UnsupportedError: It was not compiled before and this installation has no compiler.
        """
        parameters = {
            "config": self.config.to_dict(),
            "mode": self.mode,
            "entry": self.entry,
            "shape": [self.rows, self.tokens, self.capacity],
        }
        return open_kernel(self.name, parameters, self._source)

    def _source(self) -> "Source":
        raise NotImplementedError
