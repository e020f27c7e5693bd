"""Running an update rule on the caller's arrays, in place."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainc.frontends.arrays import Float32
from trainc.runtime.buffers import IMPORT_ALIGNMENT_BYTES, HostMemory, aligned_zeros
from trainc.runtime.device import Device
from trainc.runtime.program import Program

_ITEM_BYTES = 4
SPLIT_FROM = 1 << 18
"""From this many elements on, a second call for the elements before a boundary costs less than it saves."""

Part = tuple[int, int]


class Memory:
    """An array as the kernels use it: where it lies, or a copy where its floats do not start on multiples of 4 bytes.

    Args:
        array: float32, C-contiguous, not empty; its elements are used in their order.
        keep: Keep the device's handles on it for the next call.

    Attributes:
        flat: The elements, a view [size].
    """

    def __init__(self, array: Float32, *, keep: bool = False) -> None:
        self.flat: Float32 = array.reshape(-1)
        self._keep = keep
        self._kept: dict[Part, HostMemory] = {}

    def load(self, device: Device, part: Part) -> HostMemory:
        """Elements [start, stop) for a device."""
        memory = self._kept.get(part)
        if memory is not None:
            return memory
        elements = self.flat[slice(*part)]
        if elements.flags.aligned:
            memory = HostMemory(device, elements)
            if self._keep:
                self._kept[part] = memory
            return memory
        copy: Float32 = aligned_zeros(elements.shape, np.float32)
        copy[...] = elements
        return HostMemory(device, copy)

    def store(self, part: Part, memory: HostMemory) -> None:
        """Take over what a device has written into what `load` gave it."""
        if not self.flat.flags.aligned:
            self.flat[slice(*part)] = memory.array


def zeros_beside(array: Float32) -> Float32:
    """Returns zeros, flat, that lie as far from a boundary of 64 bytes as `array`."""
    skip = _past_boundary(array) // _ITEM_BYTES
    zeros: Float32 = aligned_zeros((array.size + skip,), np.float32)[skip:]
    return zeros


def run_rule(
    program: Program, rule: str, memories: Mapping[str, Memory], written: Sequence[str], scalars: Mapping[str, Any]
) -> None:
    """Applies an update rule to the elements of some arrays.

    Args:
        program: The rule's kernel.
        rule: The name of its entry.
        memories: The arrays by their names in the kernel, all of one size.
        written: Names of those that are rewritten.
        scalars: The rule's scalars.
    """
    for part in _parts(memories["p"].flat):
        loaded = {name: memory.load(program.device, part) for name, memory in memories.items()}
        program.call(rule, {**loaded, **scalars, "length": part[1] - part[0]})
        for name in written:
            memories[name].store(part, loaded[name])


def _parts(param: Float32) -> list[Part]:
    """The parts of a call: kernels take any start, and are faster where vectors do not cross cache lines."""
    head = -_past_boundary(param) % IMPORT_ALIGNMENT_BYTES // _ITEM_BYTES
    if param.size < SPLIT_FROM or head == 0:
        return [(0, param.size)]
    return [(0, head), (head, param.size)]


def _past_boundary(array: Float32) -> int:
    return int(array.__array_interface__["data"][0]) % IMPORT_ALIGNMENT_BYTES
