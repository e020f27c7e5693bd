"""From an artifact back to what it was compiled from."""

from collections.abc import Iterable

from trainc.core.errors import ArtifactError
from trainc.core.manifest import Manifest
from trainc.frontends.samba.config_file import config_from_document
from trainc.frontends.samba.driver import KIND
from trainc.frontends.samba.tracing.build import samba_source
from trainc.frontends.tracing.artifact import Source


def source_of(manifest: Manifest, modules: Iterable[str]) -> Source:
    """Trace modules of an artifact once more from its configuration.

    Args:
        manifest: The artifact's manifest.
        modules: Names of its modules.

    Raises:
        ArtifactError: It is of a kind that cannot be traced from its manifest.
        ConfigError: Its configuration is not one of this version.
        UsageError, UnsupportedError: Its numeric mode or precision is none of this version.
    """
    if manifest.kind != KIND:
        raise ArtifactError(f"an artifact of kind {KIND!r} can be traced again, got one of kind {manifest.kind!r}")
    settings = {name: value for name, value in manifest.settings.items() if value is not None}
    run = config_from_document({"model": manifest.config, **settings})
    return samba_source(run, modules, manifest.numeric_mode, manifest.precision)
