"""What every target says about itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainc.core.errors import UnsupportedError


@dataclass(frozen=True)
class Target:
    """A kind of device to compile for.

    Attributes:
        name: The name it was asked for by, which its modules carry in an artifact.
        family: "cpu", "cuda", "rocm", "vulkan" or "metal"; it selects the passes.
        driver: The driver that runs its modules.
        arch: The compiler's name of the processor or GPU.
        features: CPU features its code may use, sorted, by the compiler's names; () for a GPU.
        subgroup_sizes: Sizes of the groups of threads that its code relies on; () if on none.
        vector_bytes: Width of the vector registers of a CPU; 0 for a GPU.
        workgroup_bytes: Memory that the threads of a workgroup may share; 0 for a CPU.
        workgroup_threads: Most threads of a workgroup; 0 for a CPU.
        refused: What is asked for elsewhere and not offered here: its name and the reason.
        host: The CPU and its features as one text for cache keys, "" if the flags do not depend on the machine.
    """

    name: str
    family: str
    driver: str
    arch: str
    features: tuple[str, ...] = ()
    subgroup_sizes: tuple[int, ...] = ()
    vector_bytes: int = 0
    workgroup_bytes: int = 0
    workgroup_threads: int = 0
    refused: Mapping[str, str] = field(default_factory=dict)
    host: str = ""
    _flags: tuple[str, ...] = field(default=(), repr=False)

    def flags(self) -> tuple[str, ...]:
        """Flags of iree-compile for this target."""
        return self._flags

    @property
    def precisions(self) -> tuple[str, ...]:
        """The precisions it is offered in."""
        return tuple(name for name in ("f32", "bf16") if name not in self.refused)

    def check_precision(self, precision: str) -> None:
        """Refuse a precision that this target does not offer.

        Args:
            precision: "f32" or "bf16".

        Raises:
            UnsupportedError: The target cannot compute in it.
        """
        if precision in self.refused:
            raise UnsupportedError(
                f"precision {precision!r} is not offered for target {self.name!r}: {self.refused[precision]}; use 'f32'"
            )
