"""Finding the driver of an artifact by the kind in its manifest."""

from trainc.core.errors import ArtifactError
from trainc.core.manifest import Manifest
from trainc.frontends.samba.driver import SambaDriver
from trainc.runtime.driver import Driver

_DRIVERS = {SambaDriver.kind: SambaDriver}


def driver_for(manifest: Manifest) -> Driver:
    """The driver of an artifact.

    Raises:
        ArtifactError: This version knows no such kind, or the manifest does not fit it.
    """
    if manifest.kind not in _DRIVERS:
        raise ArtifactError(
            f"the artifact is of kind {manifest.kind!r}; this trainc knows: {', '.join(_DRIVERS)}; use the version "
            f"that compiled it ({manifest.trainc_version})"
        )
    return _DRIVERS[manifest.kind](manifest)
