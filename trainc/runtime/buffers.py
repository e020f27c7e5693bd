"""Host memory that a device works on without a copy."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.errors import DeviceError
from trainc.core.state_table import Flat, StateTable
from trainc.runtime.device import Device

PAGE_BYTES = 4096
IMPORT_ALIGNMENT_BYTES = 64
"""Compiled code loads whole vectors: memory that starts elsewhere crashes the process."""


def aligned_zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A new array of zeros that starts on a page."""
    wanted = np.dtype(dtype)
    size_bytes = max(1, math.prod(shape)) * wanted.itemsize
    raw = np.zeros(size_bytes + PAGE_BYTES, np.uint8)
    start = -raw.ctypes.data % PAGE_BYTES
    return raw[start : start + math.prod(shape) * wanted.itemsize].view(wanted).reshape(shape)


def import_host(device: Device, array: npt.NDArray[Any]) -> Any:
    """Let a device use an array's memory in place; the array must outlive the returned buffer handle.

    Raises:
        DeviceError: The array is not contiguous, is empty, or does not start on 64 bytes.
    """
    import iree.runtime as rt

    if not array.flags.c_contiguous or array.size == 0 or array.ctypes.data % IMPORT_ALIGNMENT_BYTES:
        raise DeviceError(
            f"memory for a device must be contiguous and start on {IMPORT_ALIGNMENT_BYTES} bytes, got "
            f"{array.dtype} {array.shape} at {array.ctypes.data % IMPORT_ALIGNMENT_BYTES} past such a start; "
            "take it from aligned_zeros"
        )
    return device.handle.allocator.import_host_allocation(
        array,
        memory_type=int(rt.MemoryType.HOST_LOCAL | rt.MemoryType.DEVICE_VISIBLE),
        allowed_usage=int(rt.BufferUsage.DEFAULT | rt.BufferUsage.MAPPING),
    )


class FlatBuffer:
    """The tensors of a state table in one buffer that stays on the device.

    On the CPU host and device share the memory: `flat` and `views()` are live, also between calls.

    Attributes:
        table: Where each tensor lies.
        name: Names the buffer in errors.
        flat: float32 [table.size], zero at the start.
    """

    def __init__(self, device: Device, table: StateTable, name: str | None = None) -> None:
        self.table = table
        self.name = name or table.name
        self.flat: Flat = aligned_zeros((table.size,), np.float32)
        self._handle: Any = import_host(device, self.flat)
        device.register(self)

    @property
    def handle(self) -> Any:
        """The runtime's buffer object.

        Raises:
            DeviceError: The device is closed.
        """
        if self._handle is None:
            raise DeviceError(f"buffer {self.name!r} belongs to a device that is closed")
        return self._handle

    def views(self) -> dict[str, npt.NDArray[Any]]:
        """The tensors by name, as views: writing to one changes the state."""
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


class HostMemory:
    """An array's memory, used by compiled code in place.

    Args:
        device: The device.
        array: Contiguous, not empty, its first element on a boundary of 64 bytes; it is kept alive.

    Attributes:
        array: As given.

    Raises:
        DeviceError: The array's memory cannot be used in place.
    """

    def __init__(self, device: Device, array: npt.NDArray[Any]) -> None:
        self.array = array
        self._handle: Any = import_host(device, array)
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
