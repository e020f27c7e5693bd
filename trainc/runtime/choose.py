"""The device that a name given by a person means for an artifact."""

from collections.abc import Callable

from trainc.core.errors import DeviceError, NumericsError
from trainc.runtime.artifact import Artifact
from trainc.runtime.device import Device, open_device
from trainc.runtime.discovery import discover
from trainc.runtime.matching import fastest_first

AUTO = "auto"


def device_for(artifact: Artifact, name: str, accept: Callable[[Device], object] | None = None) -> Device:
    """Open a device by name; "auto" is the fastest one that the artifact has modules for.

    Args:
        artifact: What is to run there.
        name: "auto", or what `open_device` takes.
        accept: Examines each device that "auto" considers, and raises `DeviceError` or `NumericsError` to have the
            next one taken.

    Raises:
        DeviceError: There is no such device, or none that "auto" could take; the message has the reasons.
    """
    if name != AUTO:
        return open_device(name)
    reasons = []
    for info in fastest_first(discover()):
        try:
            artifact.target(info)
            device = open_device(info.name)
            if accept is not None:
                accept(device)
            return device
        except (DeviceError, NumericsError) as error:
            reasons.append(f"{info.name}: {error}")
    raise DeviceError(f"no device here runs {artifact.path}: {'; '.join(reasons)}")
