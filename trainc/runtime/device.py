"""Devices: opening one by name, and taking everything down in order when the process ends.

A device is opened once per process and lives until the process ends. The device runtime crashes or complains when a
device goes before what was made on it, so every object that holds handles of a device registers itself here and is
told to let go first.
"""

import atexit
import ctypes
import os
import threading
import time
import weakref
from typing import Any, Protocol

from trainc.core.errors import DeviceError, UsageError
from trainc.runtime.allocator import keep_freed_memory
from trainc.runtime.discovery import DRIVERS, DeviceInfo, device_id, discover, discover_family, usable

DEFAULT_DEVICE = "cpu"

_LAST_DROPS_S = 2.0
_SETTLE_S = 0.01

_lock = threading.Lock()
_open: dict[str, "Device"] = {}


class Holder(Protocol):
    """Something that holds handles of a device."""

    def release(self) -> None:
        """Drop every handle; calls after it raise `DeviceError`."""


class Device:
    """An open device; get one from `open_device`.

    Attributes:
        info: What is known of it.
        threads: Worker threads it computes with; 0 where these are not the CPU's.
    """

    def __init__(self, info: DeviceInfo, threads: int) -> None:
        self.info, self.threads = info, threads
        self._holders: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lent: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._handles: tuple[Any, Any, Any] | None = _create(info, threads)

    @property
    def name(self) -> str:
        """Its full name, such as "cpu" or "vulkan:0"."""
        return self.info.name

    @property
    def driver(self) -> str:
        """The driver behind it."""
        return self.info.driver

    @property
    def uses_host_memory(self) -> bool:
        """Whether compiled code works on the host's memory in place; elsewhere everything is copied in and out."""
        return self.info.kind == "cpu"

    @property
    def handle(self) -> Any:
        """The runtime's device object."""
        return self._all()[0]

    @property
    def instance(self) -> Any:
        """The runtime's instance object, which modules are loaded into."""
        return self._all()[1]

    @property
    def hal_module(self) -> Any:
        """The runtime module through which compiled code reaches the device."""
        return self._all()[2]

    def register(self, holder: Holder) -> None:
        """Have `holder.release()` called before the device goes."""
        self._holders.add(holder)

    def lend(self, memory: Any) -> None:
        """Note a host object whose memory the device uses until it drops the object."""
        self._lent[id(memory)] = memory

    def close(self) -> None:
        """Release every holder, then the device; calling it again does nothing.

        The device itself is left to the system. On a GPU, buffers and semaphores of the drivers do not keep it, and one
        that goes after it, with the traceback that the interpreter drops at its very end, would crash the process. On
        the CPU, taking it down waits for its workers with the interpreter held, and a worker may need that to drop
        host memory: both would wait for ever.
        """
        for holder in list(self._holders):
            holder.release()
        self._wait_for_lent()
        if self._handles is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._handles))
        self._handles = None

    def _wait_for_lent(self) -> None:
        """Let workers drop what they still hold of the last call, while there is an interpreter to do it with.

        Handles that something else keeps are not waited for long.
        """
        end_s = time.monotonic() + _LAST_DROPS_S
        while self._lent and time.monotonic() < end_s:
            time.sleep(0.001)
        time.sleep(_SETTLE_S)  # a worker may hold memory of a view whose own handle is gone already

    def _all(self) -> tuple[Any, Any, Any]:
        if self._handles is None:
            raise DeviceError(f"device {self.name!r} is closed; it cannot be used after the end of the process began")
        return self._handles


def available_devices() -> list[str]:
    """Names that `open_device` takes on this machine."""
    return usable(discover())


def default_threads() -> int:
    """Number of processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def open_device(name: str = DEFAULT_DEVICE, *, threads: int | None = None) -> Device:
    """Open a device, or return the one that is open under this name.

    Args:
        name: "cpu", or a family ("vulkan", "cuda", "rocm", "metal") with or without a number; none is the first.
        threads: Worker threads of the CPU; None is one per processor this process may use, or what the open device
            has. Results do not depend on it. It is fixed by the first opening.

    Raises:
        DeviceError: There is no such device here, it does not start, or it is open with another number of threads.
        UsageError: `threads` is below 1, or given for a device that is no CPU.
    """
    if threads is not None and threads < 1:
        raise UsageError(f"threads must be at least 1, got {threads}")
    full = full_name(name)
    if threads is not None and full != "cpu":
        raise UsageError(f"threads are those of the CPU; leave them out for device {name!r}")
    with _lock:
        device = _open.get(full)
        if device is None:
            info = find_device(full)
            if not _open:
                atexit.register(close_devices)
            device = _open[full] = Device(info, (threads or default_threads()) if full == "cpu" else 0)
        if threads not in (None, device.threads):
            raise DeviceError(
                f"device {name!r} has run with {device.threads} threads since it was first opened, {threads} were "
                "asked for; choose the number of threads at the first opening"
            )
        return device


def full_name(name: str) -> str:
    """A device's name with its number: "vulkan" is "vulkan:0".

    Raises:
        DeviceError: No such family of devices.
    """
    family, colon, number = name.partition(":")
    if family not in DRIVERS or (family == "cpu" and colon) or (colon and not number.isdecimal()):
        raise DeviceError(
            f"no device {name!r} here; there is: {', '.join(available_devices())}; a name is cpu, or one of "
            f"{', '.join(list(DRIVERS)[1:])} with or without a number"
        )
    return family if family == "cpu" else f"{family}:{int(number or 0)}"


def find_device(name: str) -> DeviceInfo:
    """What is known of a device that can be opened.

    Raises:
        DeviceError: There is no such device here; the message says why.
    """
    full = full_name(name)
    found = discover_family(full.partition(":")[0])
    for info in found:
        if info.name == full and info.available:
            return info
    why = found[0].reason or f"there is: {', '.join(usable(found))}"
    raise DeviceError(f"no device {name!r} here; {why}; `trainc targets --devices` lists all")


def close_devices() -> None:
    """Take all devices down in order; the end of the process does it."""
    with _lock:
        while _open:
            _open.popitem()[1].close()
        atexit.unregister(close_devices)


def _create(info: DeviceInfo, threads: int) -> tuple[Any, Any, Any]:
    import iree.runtime as rt
    from iree.runtime import _binding

    # Handles that an exception's traceback keeps alive to the very end are harmless; the report on them is not.
    _binding.disable_leak_checker()
    if threads:
        rt.flags.parse_flags(f"--task_topology_group_count={threads}")
    try:
        handle = rt.get_driver(info.driver).create_device(device_id(info))
    except (RuntimeError, ValueError) as error:
        raise DeviceError(f"device {info.name!r} does not start: {error}") from error
    instance = rt.VmInstance()
    keep_freed_memory()  # not earlier: 65 MB that a device takes and never touches would be filled with zeros
    return handle, instance, rt.create_hal_module(instance, handle)
