"""Running the self-test of an artifact on a device: every entry, compared output by output."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from trainc.core.errors import ArtifactError
from trainc.core.selftest import SelfTest, draw_argument, draw_state, fingerprint, least_norms
from trainc.runtime.buffers import FlatBuffer
from trainc.runtime.program import Program

Tell = Callable[[str], None]
"""Called with one line before each entry."""


@dataclass(frozen=True)
class Compared:
    """One output of an entry.

    Attributes:
        entry: The entry.
        output: A result by name, or "BUFFER.TENSOR" for what was written into a buffer.
        error: Norm of the error relative to the norm of what was expected; not a number where the output is none.
        tolerance: What it may be.
    """

    entry: str
    output: str
    error: float
    tolerance: float

    @property
    def ok(self) -> bool:
        """Whether the error is within the tolerance."""
        return self.error <= self.tolerance

    @property
    def badness(self) -> float:
        """The error in units of the tolerance, infinite if it is not a number."""
        return self.error / self.tolerance if self.error == self.error else float("inf")


def verify(program: Program, tell: Tell = lambda line: None) -> list[Compared]:
    """Run every entry of an artifact on inputs that are drawn anew, and compare what it gives.

    Args:
        program: The artifact on a device.
        tell: Told which entry comes next.

    Returns:
        All outputs, by entry in the order of the manifest.

    Raises:
        ArtifactError: The artifact has no self-test, or it does not fit its entries.
        DeviceError: The device failed.
    """
    selftest = program.manifest.selftest
    if selftest is None:
        raise ArtifactError(f"{program.artifact.path} has no self-test, so it cannot be verified")
    missing = [name for name in program.manifest.entries if name not in selftest.entries]
    if missing:
        raise ArtifactError(f"{program.artifact.path}: its self-test says nothing of entry {missing[0]!r}")
    found = []
    buffers: dict[str, FlatBuffer] = {}
    for number, name in enumerate(program.manifest.entries, 1):
        tell(f"verifying {name} on {program.target_name} ({number} of {len(program.manifest.entries)})")
        found += _run(program, name, selftest, buffers)
    return found


def _run(program: Program, name: str, selftest: SelfTest, buffers: dict[str, FlatBuffer]) -> list[Compared]:
    """Run one entry; `buffers` are kept from entry to entry and filled for each."""
    arguments: dict[str, Any] = {}
    for arg in program.entry(name).args:
        if arg.state is None:
            drawn = draw_argument(selftest.draws, name, arg.name, arg.shape, arg.dtype)
            arguments[arg.name] = drawn if arg.kind == "tensor" else drawn.item()
            continue
        if arg.name not in buffers:
            buffers[arg.name] = program.new_state(arg.state, arg.name)
        flat = draw_state(selftest.draws, arg.name, program.manifest.state[arg.state])
        # What is only written starts as not-a-number, so that what an entry forgets to write is found.
        buffers[arg.name].flat[...] = float("nan") if flat is None else flat
        arguments[arg.name] = buffers[arg.name]
    results = program.call(name, arguments)
    compared = []
    least = least_norms({output: expected.values for output, expected in selftest.entries[name].items()})
    for output, expected in selftest.entries[name].items():
        error = expected.error(fingerprint(_output(program, name, output, results, buffers)), least[output])
        compared.append(Compared(name, output, error, expected.tolerance))
    return compared


def _output(
    program: Program, entry: str, output: str, results: dict[str, npt.NDArray[Any]], buffers: dict[str, FlatBuffer]
) -> npt.NDArray[Any]:
    if output in results:
        return results[output]
    for arg in program.entry(entry).args:
        tensor = output.removeprefix(f"{arg.name}.")
        if arg.state is None or tensor == output:
            continue
        if tensor == "*":
            return buffers[arg.name].flat
        views = buffers[arg.name].views()
        if tensor in views:
            return views[tensor]
    raise ArtifactError(f"{program.artifact.path}: entry {entry!r} has no output {output!r}, which its self-test names")
