"""The checkpoints of one run: `OUT/checkpoints/step-00000100.safetensors`, the last few of them, and `latest`."""

import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainc.core.errors import CheckpointError, UsageError
from trainc.core.files import atomic_write, remove_leftovers
from trainc.runtime.checkpoint import Arrays, write_checkpoint

logger = logging.getLogger(__name__)

FOLDER = "checkpoints"
POINTER = "latest"
_NAME = re.compile(r"^step-(\d{8,})\.safetensors$")


class CheckpointStore:
    """Writes checkpoints of a run and finds them again.

    The pointer `latest` is written after the checkpoint it names, and older checkpoints go after that: a run killed
    at any moment leaves a whole checkpoint and a pointer to it.

    Args:
        run: The run's folder.
        keep: How many checkpoints to keep, at least 1.

    Raises:
        CheckpointError: `keep` is below 1.
    """

    def __init__(self, run: Path | str, keep: int = 3) -> None:
        if keep < 1:
            raise CheckpointError(f"a run must keep at least 1 checkpoint, got {keep}")
        self.folder = Path(run) / FOLDER
        self.keep = keep

    def path_of(self, step: int) -> Path:
        """The file of a step's checkpoint."""
        return self.folder / f"step-{step:08d}.safetensors"

    def open_for_writing(self) -> None:
        """Make the folder and clear what killed saves left in it.

        Raises:
            CheckpointError: The folder cannot be made or written.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            remove_leftovers(self.folder)
        except OSError as error:
            raise CheckpointError(f"{self.folder} cannot be used: {error.strerror or error}") from error

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep other runs out of the folder, which must exist; the system lets go of it when a process dies.

        Raises:
            UsageError: Another run is writing there.
        """
        if os.name != "posix":
            yield
            return
        import fcntl

        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise UsageError(f"another run is writing to {self.folder.parent}; give this one another folder") from error
        except OSError:  # a file system without locks
            logger.debug("%s cannot be locked", self.folder)
        try:
            yield
        finally:
            os.close(descriptor)

    def save(self, step: int, parameters: Arrays, m: Arrays, v: Arrays, state: Mapping[str, Any]) -> Path:
        """Write the checkpoint of a step, point `latest` at it and delete those that are too old.

        Raises:
            CheckpointError: It cannot be written; the older checkpoints and `latest` are as they were.
        """
        path = self.path_of(step)
        write_checkpoint(path, parameters, m, v, state)
        try:
            atomic_write(self.folder / POINTER, f"{path.name}\n".encode())
            for old in [found for found in self._newest_first() if found != path][self.keep - 1 :]:
                old.unlink(missing_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"{self.folder / POINTER} cannot be written: {error.strerror or error}; {path} is whole"
            ) from error
        return path

    def latest(self) -> Path | None:
        """The checkpoint to go on from: the one `latest` names, or without that file the newest; None if there is none.

        Raises:
            CheckpointError: `latest` names a file that is not there.
        """
        try:
            name = (self.folder / POINTER).read_text("utf-8").strip()
        except (FileNotFoundError, NotADirectoryError):
            return next(iter(self._newest_first()), None)
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{self.folder / POINTER} cannot be read: {error}") from error
        path = self.folder / name
        if not _NAME.match(name) or not path.is_file():
            there = ", ".join(p.name for p in self._newest_first()) or "none"
            raise CheckpointError(
                f"{self.folder / POINTER} names {name!r:.80}, which is not there; there is: {there}; write one of "
                "them into that file"
            )
        return path

    def _newest_first(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        found = [(int(match[1]), path) for path in self.folder.iterdir() if (match := _NAME.match(path.name))]
        return [path for _, path in sorted(found, reverse=True)]


def find_checkpoint(path: Path | str) -> Path:
    """The checkpoint that a path means: the file itself, or the latest of a run's folder or its checkpoints' folder.

    Raises:
        CheckpointError: There is none.
    """
    given = Path(path)
    if not given.is_dir():
        return given
    run = given.parent if given.name == FOLDER else given
    found = CheckpointStore(run).latest()
    if found is None:
        raise CheckpointError(f"{given} holds no checkpoint; expected a run's folder or a checkpoint file")
    return found
