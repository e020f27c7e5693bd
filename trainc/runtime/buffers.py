"""What stays on a device between calls, and the host's memory that the CPU's device works on without a copy."""

import math
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.errors import DeviceError
from trainc.core.state_table import Flat, StateTable
from trainc.runtime.device import Device
from trainc.runtime.staging import download, new_buffer, upload

PAGE_BYTES = 4096
IMPORT_ALIGNMENT_BYTES = 64
"""Compiled code loads whole vectors: memory that starts elsewhere crashes the process (but see `HostMemory`)."""


def aligned_zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A new array of zeros that starts on a page."""
    wanted = np.dtype(dtype)
    size_bytes = max(1, math.prod(shape)) * wanted.itemsize
    raw = np.zeros(size_bytes + PAGE_BYTES, np.uint8)
    start = -raw.ctypes.data % PAGE_BYTES
    return raw[start : start + math.prod(shape) * wanted.itemsize].view(wanted).reshape(shape)


def import_host(device: Device, array: npt.NDArray[Any], alignment: int = IMPORT_ALIGNMENT_BYTES) -> Any:
    """Let a device use an array's memory in place; the array must outlive the returned buffer handle.

    Read-only memory is taken too: whoever passes it on answers for it that the compiled code only reads it.

    Args:
        device: The device.
        array: The array.
        alignment: Bytes whose multiple the memory must start on, as the code that uses it was compiled.

    Raises:
        DeviceError: The array is not contiguous, is empty, or starts elsewhere; or the device does not work on the
            host's memory.
    """
    import iree.runtime as rt

    if not device.uses_host_memory:
        raise DeviceError(
            f"memory of the host cannot be used in place by {device.info}; only device 'cpu' can run this"
        )
    if not array.flags.c_contiguous or array.size == 0 or array.ctypes.data % alignment:
        raise DeviceError(
            f"memory for a device must be contiguous and start on {alignment} bytes, got "
            f"{array.dtype} {array.shape} at {array.ctypes.data % alignment} past such a start; "
            "take it from aligned_zeros"
        )
    memory = array.view() if array.flags.writeable else np.asarray(_Writable(array))
    device.lend(memory)
    return device.handle.allocator.import_host_allocation(
        memory,
        memory_type=int(rt.MemoryType.HOST_LOCAL | rt.MemoryType.DEVICE_VISIBLE),
        allowed_usage=int(rt.BufferUsage.DEFAULT | rt.BufferUsage.MAPPING),
    )


class _Writable:
    """The memory of a read-only array, declared writable: the runtime imports no other."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self._owner = array
        interface = array.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


class FlatBuffer:
    """The tensors of a state table in one buffer that stays on the CPU's device.

    Host and device share the memory: `flat` and `views()` are live, also between calls. `new_flat_buffer` makes the
    kind of buffer that a device needs.

    Attributes:
        table: Where each tensor lies.
        name: Names the buffer in errors.
        device: Where it lives.
    """

    def __init__(self, device: Device, table: StateTable, name: str | None = None) -> None:
        self.table = table
        self.name = name or table.name
        self.device = device
        self._flat: Flat = aligned_zeros((table.size,), np.float32)
        self._handle: Any = self._make(device)
        device.register(self)

    @property
    def flat(self) -> Flat:
        """float32 [table.size], zero at the start; writing to it changes the state."""
        return self._flat

    @property
    def handle(self) -> Any:
        """The runtime's buffer object, for one call.

        Raises:
            DeviceError: The device is closed.
        """
        if self._handle is None:
            raise DeviceError(f"buffer {self.name!r} belongs to a device that is closed")
        return self._handle

    def views(self) -> dict[str, npt.NDArray[Any]]:
        """The tensors by name, as views of `flat`."""
        return self.table.views(self.flat)

    def write(self, arrays: Mapping[str, npt.ArrayLike]) -> None:
        """Copy one array for every tensor in; all are checked before the first is written.

        Raises:
            ShapeError: A tensor is missing, unknown or of another shape.
            DtypeError: An array of another dtype.
        """
        self.table.write(self.flat, arrays)

    def clear(self) -> None:
        """Set everything to zero."""
        self.flat.fill(0)

    def release(self) -> None:
        """Drop the device's handle; the host side stays."""
        self._handle = None

    def _make(self, device: Device) -> Any:
        return import_host(device, self._flat)


class MirroredBuffer(FlatBuffer):
    """The tensors of a state table in a device's own memory, with a copy of them on the host.

    Asking for `flat` or `views()` fetches what calls have changed, and the next call brings what was written to them
    back: ask for them again after every call, for arrays from before it neither show nor take what comes later.
    Between calls that nobody looks in on, nothing is copied.
    """

    def __init__(self, device: Device, table: StateTable, name: str | None = None) -> None:
        self._lock = threading.Lock()
        self._newer = "host"
        super().__init__(device, table, name)

    @property
    def flat(self) -> Flat:
        """float32 [table.size], zero at the start; what is written to it counts from the next call on.

        Raises:
            DeviceError: The device failed, or is closed and had newer values.
        """
        with self._lock:
            if self._newer == "device":
                download(self.device, super().handle, self._flat)
            self._newer = "host"
            return self._flat

    @property
    def handle(self) -> Any:
        """The runtime's buffer object, for one call that may change it.

        Raises:
            DeviceError: The device failed or is closed.
        """
        with self._lock:
            handle = super().handle
            if self._newer == "host":
                upload(self.device, self._flat, handle)
            self._newer = "device"
            return handle

    def clear(self) -> None:
        """Set everything to zero."""
        with self._lock:
            self._flat.fill(0)
            self._newer = "host"

    def _make(self, device: Device) -> Any:
        return new_buffer(device, self._flat.nbytes, self.name)


def new_flat_buffer(device: Device, table: StateTable, name: str | None = None) -> FlatBuffer:
    """A buffer of zeros of the kind that a device needs.

    Args:
        device: Where it is to live.
        table: Where each tensor lies.
        name: Names the buffer in errors.

    Raises:
        DeviceError: The device has no room for it.
    """
    kind = FlatBuffer if device.uses_host_memory else MirroredBuffer
    return kind(device, table, name)


class HostMemory:
    """An array's memory of any length, used by compiled code in place.

    Code for such memory is compiled to take it from any element on (trainc.compiler.build): no larger boundary counts.

    Args:
        device: The device.
        array: Contiguous, not empty, its first element on a multiple of its size; it is kept alive.

    Attributes:
        array: As given.

    Raises:
        DeviceError: The array's memory cannot be used in place.
    """

    def __init__(self, device: Device, array: npt.NDArray[Any]) -> None:
        self.array = array
        self._handle: Any = import_host(device, array, array.itemsize)
        device.register(self)

    @property
    def handle(self) -> Any:
        """The runtime's buffer object.

        Raises:
            DeviceError: The device is closed.
        """
        if self._handle is None:
            raise DeviceError("this memory belongs to a device that is closed")
        return self._handle

    def release(self) -> None:
        """Drop the device's handle; the array stays."""
        self._handle = None
