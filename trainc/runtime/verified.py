"""Remembering which artifacts gave the right numbers on which device, and asking for it before a run."""

import hashlib
import importlib.metadata
import json
import os
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import platformdirs

from trainc.core.errors import NumericsError
from trainc.core.files import atomic_write, canonical_json, sha256_file
from trainc.runtime.artifact import MANIFEST
from trainc.runtime.program import Program
from trainc.runtime.verify import Compared, Tell, verify

_FOLDER = "verified"


def folder() -> Path:
    """Where passed verifications are kept: in TRAINC_CACHE_DIR if that is set, else in the user's state folder."""
    override = os.environ.get("TRAINC_CACHE_DIR")
    return (Path(override).expanduser() if override else platformdirs.user_state_path("trainc")) / _FOLDER


def is_verified(program: Program) -> bool:
    """Whether this artifact passed on this device with this driver and runtime before."""
    return _path(program).exists()


def verify_and_remember(program: Program, tell: Tell = lambda line: None) -> list[Compared]:
    """Run the self-test; remember that it was passed, or forget that it once was.

    Args:
        program: The artifact on a device.
        tell: Told which entry comes next.

    Raises:
        ArtifactError: The artifact has no self-test, or it does not fit its entries.
        DeviceError: The device failed.
    """
    compared = verify(program, tell)
    path = _path(program)
    try:
        if all(one.ok for one in compared):
            path.parent.mkdir(parents=True, exist_ok=True)
            facts = _facts(program) | {"verified": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
            atomic_write(path, (json.dumps(facts, indent=1) + "\n").encode())
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        warnings.warn(f"the verification cannot be remembered in {path.parent} ({error})", RuntimeWarning, stacklevel=2)
    return compared


def require_verified(program: Program, tell: Tell = lambda line: None) -> None:
    """Refuse a device on which an artifact gives wrong numbers; a device that is not the CPU is tried out first.

    Args:
        program: The artifact on a device.
        tell: Told what is being done, if something is.

    Raises:
        NumericsError: An output is wrong; the message names the entry and the output.
        ArtifactError: The artifact has no self-test, or it does not fit its entries.
        DeviceError: The device failed.
    """
    if program.device.name == "cpu" or is_verified(program):
        return
    tell(f"{program.artifact.path} was never verified on {program.device.info}: its self-test runs first")
    require_passed(program, verify_and_remember(program, tell))


def require_passed(program: Program, compared: Sequence[Compared]) -> None:
    """Refuse a self-test with a wrong output.

    Raises:
        NumericsError: An output is wrong; the message names the entries and the worst output.
    """
    wrong = [one for one in compared if not one.ok]
    if not wrong:
        return
    worst = max(wrong, key=lambda one: one.badness)
    entries = list(dict.fromkeys(one.entry for one in wrong))
    raise NumericsError(
        f"{program.artifact.path} gives wrong numbers on {program.device.info}: entry {worst.entry!r}, output "
        f"{worst.output!r}, has an error of {worst.error:.2g} where {worst.tolerance:.2g} is allowed; wrong entries: "
        f"{', '.join(entries)}. Use another device, or compile for this very one"
    )


def _path(program: Program) -> Path:
    return folder() / f"{hashlib.sha256(canonical_json(_facts(program)).encode()).hexdigest()[:32]}.json"


def _facts(program: Program) -> dict[str, str]:
    """What a verification holds for. The manifest has the digest of every module, so its own is the artifact's."""
    info = program.device.info
    return {
        "artifact": sha256_file(program.artifact.path / MANIFEST),
        "device": info.name,
        "hardware": info.hardware,
        "driver": f"{info.driver} {info.version}".rstrip(),
        "runtime": importlib.metadata.version("iree-base-runtime"),
    }
