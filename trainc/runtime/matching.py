"""Which of an artifact's targets a device can run, and which devices are the faster ones."""

import platform
import re
from collections.abc import Iterable, Mapping

from trainc.core.errors import DeviceError
from trainc.core.manifest import Target
from trainc.runtime import cpu_features
from trainc.runtime.discovery import DeviceInfo

# Vendors by their PCI numbers (Mesa's software devices have one, too), and how their architectures are called.
_VENDORS = {
    0x1002: ("rdna", "cdna", "gfx"),
    0x10DE: ("turing", "ampere", "ada", "hopper", "blackwell", "rtx", "sm_"),
    0x13B5: ("valhall", "mali"),
    0x5143: ("adreno",),
    0x106B: ("apple", "moltenvk"),
    0x10005: ("lavapipe",),
}
_MACHINES = {"x86-64": ("x86_64", "amd64"), "aarch64": ("aarch64", "arm64")}
_SM = re.compile(r"^sm_(\d+)([a-z]?)$")

_SPEED = ("discrete", "integrated", "unknown", "cpu", "software")


def match(targets: Mapping[str, Target], device: DeviceInfo, what: str) -> tuple[str, Target]:
    """The target whose modules a device is to run, and its name.

    Of several that fit the CPU takes the one with the most features, CUDA the newest architecture, and Vulkan one for
    the device's own subgroup size before one for any; of equal ones the first is taken.

    Args:
        targets: The targets of an artifact by name.
        device: The device.
        what: Names the artifact in errors.

    Raises:
        DeviceError: No target is for this device.
    """
    candidates = {name: target for name, target in targets.items() if target.driver == device.driver}
    if not candidates:
        there = ", ".join(f"{name} ({target.driver})" for name, target in targets.items()) or "nothing"
        raise DeviceError(
            f"{what} was compiled for: {there}; found {device}, for which it has no modules; compile it with --target "
            f"{device.family}, or choose another device"
        )
    refusals = {name: refusal(target, device) for name, target in candidates.items()}
    fitting = [name for name, why in refusals.items() if not why]
    if not fitting:
        said = " and ".join(dict.fromkeys(refusals.values()))
        where = " on this machine" if device.family == "cpu" else f" with --target {device.family}"
        raise DeviceError(f"{what} was compiled for {said}; compile it again{where}, or choose another device")
    name = max(fitting, key=lambda name: _preference(name, targets[name], device))
    return name, targets[name]


def refusal(target: Target, device: DeviceInfo) -> str:
    """Why a device cannot run a target of its driver: "X, found Y", or "" if it can."""
    if device.driver == "local-task":
        return _cpu_refusal(target, device)
    arch = target.arch or f"any {device.family} device"
    if device.driver == "vulkan":
        owner = _owner(target)
        if device.vendor and owner and device.vendor != owner:
            return f"{arch}, found {device}"
        if target.subgroup_sizes and device.subgroup_size not in target.subgroup_sizes:
            sizes = " or ".join(map(str, target.subgroup_sizes))
            return f"{arch} with subgroups of {sizes}, found {device}"
    elif device.driver == "cuda" and device.arch and not _runs_cuda(target.arch, device.arch):
        return f"{arch}, found {device}"
    elif device.driver == "hip" and device.arch and target.arch != device.arch:
        return f"{arch}, found {device}"
    return ""


def fastest_first(infos: Iterable[DeviceInfo]) -> list[DeviceInfo]:
    """The devices that can be opened: GPUs, the CPU, then what the CPU only imitates."""
    return sorted((info for info in infos if info.available), key=lambda info: (_SPEED.index(info.kind), _native(info)))


def _native(info: DeviceInfo) -> bool:
    """Sorts the same hardware's own driver before Vulkan."""
    return info.driver == "vulkan"


def _owner(target: Target) -> int:
    """The vendor whose devices a Vulkan target is for; 0 if it names none."""
    arch = target.arch.lower()
    return next((vendor for vendor, names in _VENDORS.items() if arch.startswith(names)), 0)


def _preference(name: str, target: Target, device: DeviceInfo) -> tuple[bool, bool, int, bool]:
    """The larger, the better the target suits a device that it fits."""
    needed = sum(cpu_features.decides(feature.lstrip("+")) for feature in target.features if feature[:1] != "-")
    capability = _SM.match(target.arch) if device.driver == "cuda" else None
    own = device.vendor != 0 and _owner(target) == device.vendor
    return bool(target.subgroup_sizes), own, max(needed, int(capability[1]) if capability else 0), name == "cpu"


def _cpu_refusal(target: Target, device: DeviceInfo) -> str:
    found = device.hardware or "an unknown processor"
    machine = platform.machine().lower()
    for arch, names in _MACHINES.items():
        if target.arch.startswith(arch) and machine not in names:
            return f"{target.arch}, found {found} ({machine})"
    lacking = cpu_features.missing(target.features)
    return f"{target.arch or 'a processor'} with {', '.join(lacking)}, found {found} without" if lacking else ""


def _runs_cuda(wanted: str, here: str) -> bool:
    """Whether code for one NVIDIA architecture runs on another: that of a newer one, unless it is for one alone."""
    code, device = _SM.match(wanted), _SM.match(here)
    if code is None or device is None:
        return wanted == here
    return int(code[1]) == int(device[1]) if code[2] else int(code[1]) <= int(device[1])
