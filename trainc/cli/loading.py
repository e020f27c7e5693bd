"""What run, eval, sample and demo do first: open an artifact on a device, read weights, open data."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from trainc.cli.progress import Reporter
from trainc.cli.verify import teller
from trainc.frontends.drivers import driver_for
from trainc.runtime.artifact import Artifact
from trainc.runtime.buffers import FlatBuffer
from trainc.runtime.checkpoint import read_checkpoint
from trainc.runtime.checkpoint_store import find_checkpoint
from trainc.runtime.choose import device_for
from trainc.runtime.data import Corpus, Windows
from trainc.runtime.device import DEFAULT_DEVICE, Device
from trainc.runtime.driver import Driver
from trainc.runtime.program import Program
from trainc.runtime.state import TABLE
from trainc.runtime.verified import require_verified


@dataclass(frozen=True)
class Model:
    """An artifact that is ready to be called.

    Attributes:
        artifact: The artifact; its files were checked.
        driver: The driver of its kind.
    """

    artifact: Artifact
    driver: Driver

    @classmethod
    def open(cls, path: Path) -> "Model":
        """Opens an artifact and finds its driver; no device is touched."""
        artifact = Artifact.open(path)
        return cls(artifact, driver_for(artifact.manifest))

    def program(self, device: str | None) -> Program:
        """The artifact's entries on a device by name; None is the default one, "auto" the fastest."""
        return Program(self.artifact, device_for(self.artifact, device or DEFAULT_DEVICE))

    def verified_program(self, device: str | None, reporter: Reporter, no_verify: bool) -> Program:
        """The artifact's entries on a device that gives the right numbers.

        Raises:
            NumericsError: It does not.
        """
        if no_verify:
            return self.program(device)
        tell = teller(reporter)

        def accept(candidate: Device) -> None:
            require_verified(Program(self.artifact, candidate), tell)

        program = Program(self.artifact, device_for(self.artifact, device or DEFAULT_DEVICE, accept))
        require_verified(program, tell)
        return program

    def windows(self, paths: Iterable[Path]) -> Windows:
        """Data cut into the windows that the artifact was compiled for."""
        vocab = int(self.artifact.manifest.config.get("vocab", 256))
        return Corpus(paths, vocab=vocab).windows(self.driver.length)


def load_weights(program: Program, path: Path) -> FlatBuffer:
    """The weights of a checkpoint on a program's device.

    Args:
        program: Where they are to be used.
        path: A checkpoint, or a run's directory for its latest one.

    Raises:
        CheckpointError: There is none, it is damaged, or it belongs to another model.
    """
    manifest = program.manifest
    checkpoint = read_checkpoint(find_checkpoint(path))
    checkpoint.require_table(manifest.state[TABLE])
    checkpoint.require({"kind": manifest.kind, "config": manifest.config})
    params = program.new_state(TABLE, "params")
    params.flat[...] = params.table.pack(checkpoint.parameters)
    return params
