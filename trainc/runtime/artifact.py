"""Opening a compiled artifact: nothing of it is used before all of it was checked."""

import os
from dataclasses import dataclass
from pathlib import Path

from trainc.core.errors import ArtifactError
from trainc.core.files import sha256_file
from trainc.core.manifest import Manifest, ModuleFile, Target
from trainc.runtime.discovery import DeviceInfo
from trainc.runtime.matching import match

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Artifact:
    """A checked artifact.

    Attributes:
        path: Its folder.
        manifest: What it holds.
    """

    path: Path
    manifest: Manifest

    @classmethod
    def open(cls, path: Path | str) -> "Artifact":
        """Read the manifest and check every module file against it.

        Raises:
            ArtifactError: No artifact there, or one that is damaged, foreign or of another format version.
        """
        folder = Path(path)
        if not os.path.isdir(folder):  # False also for a folder that may not be looked into
            what = "is a file" if os.path.exists(folder) else "does not exist"
            raise ArtifactError(f"{folder} {what}; expected the folder that `trainc compile` wrote")
        try:
            text = (folder / MANIFEST).read_text("utf-8")
        except FileNotFoundError as error:
            raise ArtifactError(
                f"{folder} holds no {MANIFEST}; expected a folder that `trainc compile` wrote"
            ) from error
        except (OSError, UnicodeDecodeError) as error:
            raise ArtifactError(f"{folder / MANIFEST} cannot be read: {error}") from error
        try:
            artifact = cls(folder, Manifest.from_text(text))
        except ArtifactError as error:
            raise ArtifactError(f"{folder}: {error}") from error
        for target in artifact.manifest.targets.values():
            for module in target.modules.values():
                artifact._check(module)
        return artifact

    def target(self, device: DeviceInfo) -> tuple[str, Target]:
        """The modules for a device, and the name of their target.

        Raises:
            DeviceError: The artifact has no modules for this device, or they need another one of its kind.
        """
        return match(self.manifest.targets, device, str(self.path))

    def module_path(self, module: ModuleFile) -> Path:
        """Where a module's file is."""
        return self.path / module.path

    def _check(self, module: ModuleFile) -> None:
        path = self.module_path(module)
        try:
            size_bytes = os.stat(path).st_size
            digest = sha256_file(path) if size_bytes == module.size_bytes else None
        except OSError as error:
            raise ArtifactError(f"{path} cannot be read ({error}); compile the artifact again") from error
        if digest is None:
            raise ArtifactError(
                f"{path} is damaged: expected {module.size_bytes} bytes, got {size_bytes}; compile the artifact again"
            )
        if digest != module.sha256:
            raise ArtifactError(
                f"{path} is damaged: expected SHA-256 {module.sha256}, got {digest}; compile the artifact again"
            )
