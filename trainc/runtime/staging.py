"""Memory of a device that has its own: making it, and copying in and out.

Drivers differ in what memory of the host they take, so every copy goes through a buffer that the driver itself made.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.errors import DeviceError
from trainc.runtime.device import Device

_OUT_OF_MEMORY = ("RESOURCE_EXHAUSTED", "OUT_OF_MEMORY", "OUT_OF_DEVICE_MEMORY", "OUT_OF_HOST_MEMORY")
_LOST = ("DEVICE_LOST", "DATA_LOSS", "ABORTED")


def device_error(device: Device, what: str, error: Exception) -> DeviceError:
    """What a failure of the runtime means, in words.

    Args:
        device: Where it happened.
        what: What failed, as the start of a sentence.
        error: The runtime's exception.
    """
    said = str(error)
    if any(word in said for word in _OUT_OF_MEMORY):
        return DeviceError(
            f"{what}: {device.info} is out of memory; use a smaller batch or model, or a device with more ({said})"
        )
    if any(word in said for word in _LOST):
        return DeviceError(
            f"{what}: {device.info} is lost; start again, from the last checkpoint if there is one ({said})"
        )
    return DeviceError(f"{what} failed on device {device.name!r}: {said}")


def new_buffer(device: Device, size_bytes: int, name: str) -> Any:
    """A buffer in the device's own memory, with whatever that holds.

    Args:
        device: The device.
        size_bytes: Its size.
        name: Names it in errors.

    Raises:
        DeviceError: There is no room for it.
    """
    from iree.runtime import BufferUsage, MemoryType

    return _allocate(device, size_bytes, name, int(MemoryType.DEVICE_LOCAL), int(BufferUsage.DEFAULT))


class Staging:
    """A buffer that host and device both reach, for copies between them.

    Args:
        device: The device.
        shape: Shape of `array`.
        dtype: Its dtype.
        size_bytes: Size of the buffer if it is to be larger than the array.

    Attributes:
        buffer: The runtime's buffer object.
        array: The host's view of it.

    Raises:
        DeviceError: There is no room for it.
    """

    def __init__(self, device: Device, shape: tuple[int, ...], dtype: np.dtype[Any], size_bytes: int = 0) -> None:
        size_bytes = max(size_bytes, math.prod(shape) * dtype.itemsize)
        memory, usage = _staging_memory(device)
        self.buffer = _allocate(device, size_bytes, "staging", memory, usage)
        self._mapped = self.buffer.map()
        self.array: npt.NDArray[Any] = self._mapped.asarray(shape, dtype)


class Transfer:
    """Copies between buffers of a device, one after the other, that are waited for together.

    Args:
        device: The device.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._semaphore: Any = None
        self._copies = 0

    def copy(self, source: Any, target: Any) -> None:
        """Start to copy a buffer into another that is at least as large; neither may change before `wait`.

        Raises:
            DeviceError: The device failed.
        """
        import iree.runtime as rt

        device = self._device.handle
        try:
            if self._semaphore is None:
                self._semaphore = device.create_semaphore(0)
            before = rt.HalFence.create_at(self._semaphore, self._copies)
            self._copies += 1
            done = rt.HalFence.create_at(self._semaphore, self._copies)
            device.queue_copy(source, target, wait_semaphores=before, signal_semaphores=done)
        except RuntimeError as error:
            raise device_error(self._device, "a copy", error) from error

    def wait(self) -> None:
        """Return when all copies are done.

        Raises:
            DeviceError: The device failed.
        """
        if self._semaphore is not None:
            try:
                self._semaphore.wait(self._copies)
            except RuntimeError as error:
                raise device_error(self._device, "a copy", error) from error


def upload(device: Device, array: npt.NDArray[Any], buffer: Any) -> None:
    """Copy an array into a buffer of its size.

    Raises:
        DeviceError: The device failed, or has no room for staging.
    """
    staging, transfer = Staging(device, array.shape, array.dtype), Transfer(device)
    staging.array[...] = array
    transfer.copy(staging.buffer, buffer)
    transfer.wait()


def download(device: Device, buffer: Any, array: npt.NDArray[Any]) -> None:
    """Copy a buffer into an array of its size.

    Raises:
        DeviceError: The device failed, or has no room for staging.
    """
    staging, transfer = Staging(device, array.shape, array.dtype, buffer.byte_length()), Transfer(device)
    transfer.copy(buffer, staging.buffer)
    transfer.wait()
    array[...] = staging.array


def _staging_memory(device: Device) -> tuple[int, int]:
    """Type and usage of memory for staging: cached where the device has that, for reads of other memory are slow."""
    from iree.runtime import BufferCompatibility, BufferUsage, MemoryType

    memory = int(MemoryType.HOST_LOCAL) | int(MemoryType.HOST_COHERENT) | int(MemoryType.DEVICE_VISIBLE)
    cached = memory | int(MemoryType.HOST_CACHED)
    usage = int(BufferUsage.TRANSFER) | int(BufferUsage.MAPPING)
    can = device.handle.allocator.query_buffer_compatibility(
        memory_type=cached, allowed_usage=usage, intended_usage=usage, allocation_size=1
    )
    return (cached if can & int(BufferCompatibility.ALLOCATABLE) else memory), usage


def _allocate(device: Device, size_bytes: int, name: str, memory_type: int, usage: int) -> Any:
    try:
        return device.handle.allocator.allocate_buffer(
            memory_type=memory_type, allowed_usage=usage, allocation_size=size_bytes
        )
    except RuntimeError as error:
        raise device_error(device, f"buffer {name!r} of {size_bytes} bytes", error) from error
