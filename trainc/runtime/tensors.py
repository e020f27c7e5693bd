"""The memory through which the tensors of one entry go in and come out."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from trainc.core.manifest import DYNAMIC, Argument
from trainc.runtime.buffers import IMPORT_ALIGNMENT_BYTES, aligned_zeros, import_host
from trainc.runtime.device import Device
from trainc.runtime.staging import Staging, Transfer, new_buffer

Arrays = Mapping[str, npt.NDArray[Any]]


class Tensors(Protocol):
    """How the tensors of one entry reach a device. One call at a time may use it."""

    def put_in(self, arrays: Arrays, /) -> dict[str, Any]:
        """Bring arguments of checked dtypes and shapes to the device.

        Returns:
            The runtime's view of each; for a shape without dynamic dimensions the same one each time.
        """

    def take_out(self, views: Sequence[Any], /) -> list[npt.NDArray[Any]]:
        """Results in arrays of the caller's own."""

    def release(self) -> None:
        """Drop every handle."""


def tensors_on(device: Device, args: Sequence[Argument]) -> Tensors:
    """Memory for the tensors among an entry's arguments, and for its results.

    Args:
        device: The device.
        args: All arguments of the entry.
    """
    dynamic = {arg.name for arg in args if DYNAMIC in arg.shape}
    return _HostTensors(device, dynamic) if device.uses_host_memory else _DeviceTensors(device, dynamic)


class _HostTensors:
    """On the CPU: arguments are copied into memory that was imported once; those of dynamic shape are used in place."""

    def __init__(self, device: Device, dynamic: set[str]) -> None:
        self._device, self._dynamic = device, dynamic
        self._kept: dict[str, tuple[npt.NDArray[Any], Any]] = {}
        self._in_use: list[npt.NDArray[Any]] = []

    def put_in(self, arrays: Arrays, /) -> dict[str, Any]:
        return {name: self._put(name, array) for name, array in arrays.items()}

    def take_out(self, views: Sequence[Any], /) -> list[npt.NDArray[Any]]:
        import iree.runtime as rt

        arrays = [np.array(rt.DeviceArray(self._device.handle, view).to_host(), copy=True) for view in views]
        self._in_use.clear()
        return arrays

    def release(self) -> None:
        self._kept.clear()
        self._in_use.clear()

    def _put(self, name: str, array: npt.NDArray[Any]) -> Any:
        if name in self._dynamic:
            aligned = _aligned(array)
            self._in_use.append(aligned)  # views do not own their memory
            return _view(import_host(self._device, aligned), aligned.shape, aligned.dtype)
        if name not in self._kept:
            memory = aligned_zeros(array.shape, array.dtype)
            self._kept[name] = memory, _view(import_host(self._device, memory), memory.shape, memory.dtype)
        memory, view = self._kept[name]
        memory[...] = array
        return view


class _DeviceTensors:
    """Elsewhere: arguments and results are copied through staging buffers, which are kept for the next call."""

    def __init__(self, device: Device, dynamic: set[str]) -> None:
        self._device, self._dynamic = device, dynamic
        self._kept: dict[str, tuple[Staging, Any, Any]] = {}
        self._results: dict[int, Staging] = {}

    def put_in(self, arrays: Arrays, /) -> dict[str, Any]:
        views, transfer = {}, Transfer(self._device)
        for name, array in arrays.items():
            kept = self._kept.get(name)
            if kept is None or kept[0].array.shape != array.shape:
                staging = Staging(self._device, array.shape, array.dtype)
                buffer = new_buffer(self._device, array.nbytes, name)
                kept = self._kept[name] = staging, buffer, _view(buffer, array.shape, array.dtype)
            staging, buffer, views[name] = kept
            staging.array[...] = array
            transfer.copy(staging.buffer, buffer)
        transfer.wait()
        return views

    def take_out(self, views: Sequence[Any], /) -> list[npt.NDArray[Any]]:
        found, transfer = [], Transfer(self._device)
        for number, view in enumerate(views):
            buffer, shape, dtype = view.get_buffer(), tuple(view.shape), _dtype(view)
            staging = self._results.get(number)
            if staging is None or staging.buffer.byte_length() != buffer.byte_length() or staging.array.shape != shape:
                staging = self._results[number] = Staging(self._device, shape, dtype, buffer.byte_length())
            transfer.copy(buffer, staging.buffer)
            found.append(staging)
        transfer.wait()
        return [staging.array.copy() for staging in found]

    def release(self) -> None:
        self._kept.clear()
        self._results.clear()


def _view(buffer: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    import iree.runtime as rt

    return rt.HalBufferView(buffer, list(shape), rt.array_interop.map_dtype_to_element_type(dtype))


def _dtype(view: Any) -> np.dtype[Any]:
    import iree.runtime as rt

    dtype: np.dtype[Any] = np.dtype(rt.HalElementType.map_to_dtype(view.element_type))
    return dtype


def _aligned(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The array itself if its memory can be used in place, else a copy."""
    if array.ctypes.data % IMPORT_ALIGNMENT_BYTES == 0:
        return array
    copy = aligned_zeros(array.shape, array.dtype)
    copy[...] = array
    return copy
