"""What devices this machine has, driver by driver, and what is known of each."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from trainc.runtime import cpu_features

DRIVERS = {"cpu": "local-task", "vulkan": "vulkan", "cuda": "cuda", "rocm": "hip", "metal": "metal"}
"""Families of devices, by the first part of a device's name, and the runtime's driver of each."""

_MISSING = {
    "vulkan": "the Vulkan loader (libvulkan.so.1) or a Vulkan driver cannot be loaded; install the graphics driver, or "
    "mesa-vulkan-drivers for a device in software",
    "cuda": "libcuda.so cannot be loaded; install NVIDIA's driver",
    "hip": "libamdhip64.so cannot be loaded; install ROCm",
    "metal": "this build of iree-base-runtime has none; the one for macOS has",
}
_SUBGROUP = re.compile(r"^subgroup: size=(\d+) .*minSubgroupSize=(\d+) maxSubgroupSize=(\d+)", re.MULTILINE)
_FIELD = re.compile(r"^(?:- )?([\w-]+): (.*)$", re.MULTILINE)
_RUNTIME_PREFIX = re.compile(r"^.*?\b[A-Z][A-Z_]{5,}; ", re.DOTALL)
_CUDA_WARP = 32


@dataclass(frozen=True)
class DeviceInfo:
    """One device, or a driver without any.

    Attributes:
        name: What `open_device` takes, such as "cpu" or "vulkan:0"; of a driver without a device its family alone.
        driver: The runtime's driver.
        hardware: The hardware's own name.
        version: Version of its driver.
        kind: "cpu", "discrete", "integrated", "software" (a GPU's interface computed by the CPU) or "unknown".
        arch: NVIDIA's or AMD's name of the architecture, such as "sm_90"; "" where it is not known.
        vendor: The vendor's PCI number; 0 where it is not known.
        subgroup_size: Invocations of a subgroup; 0 where it is not known.
        subgroup_range: Least and largest size that code can ask for.
        reason: Why it cannot be used; "" if it can.
    """

    name: str
    driver: str
    hardware: str = ""
    version: str = ""
    kind: str = "unknown"
    arch: str = ""
    vendor: int = 0
    subgroup_size: int = 0
    subgroup_range: tuple[int, int] = (0, 0)
    reason: str = ""

    @property
    def available(self) -> bool:
        """Whether it can be opened."""
        return not self.reason

    @property
    def family(self) -> str:
        """The first part of its name."""
        return self.name.partition(":")[0]

    @property
    def software(self) -> bool:
        """Whether the CPU computes what this device is asked to."""
        return self.kind == "software"

    def __str__(self) -> str:
        facts = [self.hardware, self.arch, f"subgroup size {self.subgroup_size}" if self.subgroup_size else ""]
        known = ", ".join(fact for fact in facts if fact)
        return f"{self.name} ({known})" if known else self.name


def discover() -> list[DeviceInfo]:
    """Every device of every driver; a driver without one has one row that says why."""
    return [info for family in DRIVERS for info in discover_family(family)]


def discover_family(family: str) -> list[DeviceInfo]:
    """The devices of one family in the driver's order, or one row that says why there is none.

    Args:
        family: A key of `DRIVERS`.
    """
    driver = DRIVERS[family]
    if family == "cpu":
        return [_cpu()]
    import iree.runtime as rt

    if driver not in rt.query_available_drivers():
        return [DeviceInfo(family, driver, reason=f"driver missing: {_MISSING[driver]}")]
    try:
        handle = rt.get_driver(driver)
        rows = handle.query_available_devices()
        texts = [handle.dump_device_info(row["device_id"]) for row in rows]
    except (RuntimeError, ValueError) as error:
        return [DeviceInfo(family, driver, reason=_why_missing(driver, str(error)))]
    if not rows:
        return [DeviceInfo(family, driver, reason="the driver is there, a device is not")]
    return [_describe(family, number, *row) for number, row in enumerate(zip(rows, texts, strict=True))]


def device_id(info: DeviceInfo) -> Any:
    """The driver's own number of a device that was discovered."""
    import iree.runtime as rt

    rows = rt.get_driver(info.driver).query_available_devices()
    return rows[int(info.name.partition(":")[2] or 0)]["device_id"]


def _cpu() -> DeviceInfo:
    here = cpu_features.machine()
    try:
        runtime = version("iree-base-runtime")
    except PackageNotFoundError:
        runtime = ""
    return DeviceInfo("cpu", DRIVERS["cpu"], here[0] if here else "", runtime, "cpu")


def _why_missing(driver: str, said: str) -> str:
    """In words, why a driver does not start; the runtime's own text is for those who wrote it."""
    if "UNAVAILABLE" in said or "NOT_FOUND" in said:
        return f"driver missing: {_MISSING[driver]}"
    return f"the driver does not start: {_RUNTIME_PREFIX.sub('', said)[:200]}"


def _describe(family: str, number: int, row: Mapping[str, Any], text: str) -> DeviceInfo:
    """Read what a driver tells of one device; what it does not tell stays unknown."""
    fields = dict(_FIELD.findall(text))
    name, driver = f"{family}:{number}", DRIVERS[family]
    hardware = fields.get("name") or str(row["name"])
    if driver == "vulkan":
        sizes = _SUBGROUP.search(text)
        size, least, most = map(int, sizes.groups()) if sizes else (0, 0, 0)
        kinds = {"cpu": "software", "discrete": "discrete", "integrated": "integrated"}
        return DeviceInfo(
            name,
            driver,
            hardware,
            " ".join(fields[key] for key in ("driver", "driver_info") if key in fields),
            next((kind for word, kind in kinds.items() if word in fields.get("type", "")), "unknown"),
            vendor=int(fields.get("vendor_id", "0"), 0),
            subgroup_size=size,
            subgroup_range=(least, most),
        )
    integrated = driver == "metal" or fields.get("memory-is-integrated-memory") == "1"
    kind = "integrated" if integrated else "discrete"
    if driver == "cuda":
        capability, warp = fields.get("gpu-compute-capability", ""), _CUDA_WARP
        arch = f"sm_{capability.replace('.', '')}" if capability else ""
        return DeviceInfo(name, driver, hardware, kind=kind, arch=arch, subgroup_size=warp, subgroup_range=(warp, warp))
    return DeviceInfo(name, driver, hardware, kind=kind, arch=fields.get("gpu-arch-name", "").partition(":")[0])


def usable(infos: Sequence[DeviceInfo]) -> list[str]:
    """Names of the devices that can be opened."""
    return [info.name for info in infos if info.available]
