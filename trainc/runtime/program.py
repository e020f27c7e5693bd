"""Calling the entries of an artifact on a device.

Every argument is checked against the manifest before compiled code sees it: compiled code trusts what it gets.
"""

import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.dtypes import numpy_dtype
from trainc.core.errors import ArtifactError, DeviceError, DtypeError, ShapeError, UsageError
from trainc.core.manifest import DYNAMIC, Argument, Entry
from trainc.runtime.artifact import Artifact
from trainc.runtime.buffers import FlatBuffer, HostMemory, new_flat_buffer
from trainc.runtime.device import Device
from trainc.runtime.staging import device_error
from trainc.runtime.tensors import tensors_on
from trainc.runtime.waiting import call_behind_workers

Results = dict[str, npt.NDArray[Any]]

LENGTH = "length"
"""Name of the scalar argument that gives the number of elements of `HostMemory` arguments."""

_SCALAR_TYPES: dict[str, tuple[type[Any], ...]] = {
    "f32": (float, int, np.float32, np.float64, np.integer),
    "i32": (int, np.integer),
}


class Program:
    """The entries of an artifact, ready on one device. Modules are loaded at the first call of one of their entries.

    Args:
        artifact: The artifact.
        device: The device to run on.

    Attributes:
        artifact: As given.
        manifest: The artifact's manifest.
        device: As given.
        target: The artifact's target whose modules run.
        target_name: Its name.

    Raises:
        DeviceError: The artifact has no modules for this device, or they need another one of its kind.
    """

    def __init__(self, artifact: Artifact, device: Device) -> None:
        self.artifact = artifact
        self.manifest = artifact.manifest
        self.device = device
        self.target_name, self.target = artifact.target(device.info)
        self._modules: dict[str, tuple[Any, Any]] = {}
        self._entries: dict[str, _BoundEntry] = {}
        self._lock = threading.Lock()
        device.register(self)

    def call(self, name: str, arguments: Mapping[str, object]) -> Results:
        """Run an entry and wait for its end; other Python threads run meanwhile.

        Args:
            name: The entry.
            arguments: One value for every argument by name: a `FlatBuffer` for a state, a contiguous array of exactly
                the dtype and shape for a tensor, a number for a scalar.

        Returns:
            The entry's tensor results by name, as arrays of the caller's own. States are written in place.

        Raises:
            ArtifactError: The artifact has no such entry.
            UsageError: An argument is missing or unknown; nothing was run.
            ShapeError: An argument of another shape, or not contiguous; nothing was run.
            DtypeError: An argument of another type; nothing was run.
            DeviceError: The device failed, or is closed.
        """
        return self._bound(name).call(arguments)

    def entry(self, name: str) -> Entry:
        """The signature of an entry.

        Raises:
            ArtifactError: The artifact has no such entry.
        """
        entry = self.manifest.entries.get(name)
        if entry is None:
            raise ArtifactError(
                f"{self.artifact.path} has no entry {name!r}; it has: {', '.join(self.manifest.entries) or 'none'}"
            )
        return entry

    def new_state(self, table: str, name: str | None = None) -> FlatBuffer:
        """A new buffer of zeros for one of the artifact's state tables.

        Raises:
            ArtifactError: The artifact has no such table.
            DeviceError: The device has no room for it.
        """
        if table not in self.manifest.state:
            raise ArtifactError(
                f"{self.artifact.path} has no state {table!r}; it has: {', '.join(self.manifest.state) or 'none'}"
            )
        return new_flat_buffer(self.device, self.manifest.state[table], name)

    def release(self) -> None:
        """Drop every handle in the order the runtime needs; later calls raise `DeviceError`."""
        for entry in self._entries.values():
            entry.release()
        self._entries.clear()
        self._modules.clear()

    def _bound(self, name: str) -> "_BoundEntry":
        with self._lock:
            bound = self._entries.get(name)
            if bound is None:
                entry = self.entry(name)
                context, module = self._module(entry.module)
                bound = self._entries[name] = _BoundEntry(name, self.artifact, self.device, context, module)
            return bound

    def _module(self, name: str) -> tuple[Any, Any]:
        import iree.runtime as rt

        if name not in self._modules:
            path = self.artifact.module_path(self.target.modules[name])
            instance = self.device.instance
            try:
                module = rt.VmModule.mmap(instance, str(path))
                context = rt.VmContext(instance, [self.device.hal_module, module])
            except (RuntimeError, ValueError) as error:
                raise ArtifactError(f"{path} does not load on {self.device.name!r}: {error}") from error
            self._modules[name] = (context, module)
        return self._modules[name]


class _BoundEntry:
    """One entry with what its calls reuse: the memory of its tensor arguments and, without scalars, the whole list."""

    def __init__(self, name: str, artifact: Artifact, device: Device, context: Any, module: Any) -> None:
        entry, state = artifact.manifest.entries[name], artifact.manifest.state
        self._name, self._entry, self._device, self._context = name, entry, device, context
        self._artifact = artifact.path
        self._function = module.lookup_function(entry.function)
        if self._function is None:
            raise ArtifactError(f"module {entry.module!r} has no function {entry.function!r} (entry {name!r})")
        if not entry.results:
            raise ArtifactError(f"entry {name!r} has no result, so its end cannot be waited for; compile it again")
        self._lock = threading.Lock()
        self._tables = {arg.name: state[arg.state] for arg in entry.args if arg.state is not None}
        self._reusable = all(arg.kind in ("state", "tensor") and DYNAMIC not in arg.shape for arg in entry.args)
        self._tensors = tensors_on(device, entry.args)
        self._cached: tuple[tuple[FlatBuffer, ...], Any] | None = None

    def call(self, arguments: Mapping[str, object]) -> Results:
        self._check(arguments)
        with self._lock:
            return self._invoke(self._argument_list(arguments))

    def release(self) -> None:
        self._cached = None
        self._tensors.release()
        self._function = self._context = None

    def _check(self, arguments: Mapping[str, object]) -> None:
        names = [arg.name for arg in self._entry.args]
        missing = [name for name in names if name not in arguments]
        unknown = [name for name in arguments if name not in names]
        if missing or unknown:
            raise UsageError(f"entry {self._name!r} takes {names}; missing: {missing}, unknown: {unknown}")
        for arg in self._entry.args:
            _CHECKS[arg.kind](self, arg, arguments[arg.name])
        self._check_dynamic(arguments)

    def _check_state(self, arg: Argument, value: Any) -> None:
        if not isinstance(value, FlatBuffer):
            raise DtypeError(f"{self._where(arg)} must be a FlatBuffer, got {type(value).__name__}")
        if value.device is not self._device:
            raise DeviceError(
                f"{self._where(arg)}: buffer {value.name!r} lives on device {value.device.name!r}, the entry runs on "
                f"{self._device.name!r}; take it from the program's new_state"
            )
        table = self._tables[arg.name]
        if value.table is not table and value.table != table:
            raise ShapeError(
                f"{self._where(arg)} must be laid out as state {table.name!r} ({table.size} elements), got buffer "
                f"{value.name!r} of state {value.table.name!r} ({value.table.size} elements)"
            )

    def _check_buffer(self, arg: Argument, value: Any) -> None:
        if not isinstance(value, HostMemory):
            raise DtypeError(f"{self._where(arg)} must be a HostMemory, got {type(value).__name__}")
        if value.array.dtype != numpy_dtype(arg.dtype):
            raise DtypeError(f"{self._where(arg)} must hold {arg.dtype}, got {value.array.dtype}")

    def _check_dynamic(self, arguments: Mapping[str, Any]) -> None:
        """Check that every dynamic dimension of one call has the same size."""
        sizes = {}
        for arg in self._entry.args:
            value = arguments[arg.name]
            if arg.kind == "buffer":
                sizes[arg.name] = value.array.size
            elif arg.kind == "tensor" and DYNAMIC in arg.shape:
                sizes[arg.name] = value.shape[arg.shape.index(DYNAMIC)]
            elif arg.kind == "scalar" and arg.name == LENGTH:
                sizes[arg.name] = value
        if len(set(sizes.values())) > 1:
            raise ShapeError(f"entry {self._name!r} needs one size for {', '.join(sizes)}, got {sizes}")

    def _check_tensor(self, arg: Argument, value: Any) -> None:
        dtype = numpy_dtype(arg.dtype)
        if not isinstance(value, np.ndarray) or value.dtype != dtype:
            got = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
            raise DtypeError(f"{self._where(arg)} must be an array of {dtype}, got {got}")
        fits = len(value.shape) == len(arg.shape) and all(
            wanted in (DYNAMIC, size) for size, wanted in zip(value.shape, arg.shape, strict=True)
        )
        if not fits or value.size == 0:
            raise ShapeError(f"{self._where(arg)} must have shape {arg.shape}, got {value.shape}")
        if not value.flags.c_contiguous:
            raise ShapeError(f"{self._where(arg)} must be contiguous; pass numpy.ascontiguousarray of it")

    def _check_scalar(self, arg: Argument, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, _SCALAR_TYPES[arg.dtype]):
            raise DtypeError(f"{self._where(arg)} must be a number for {arg.dtype}, got {type(value).__name__}")
        if arg.dtype == "i32" and not -(2**31) <= value < 2**31:
            raise UsageError(f"{self._where(arg)} must fit 32 bits with a sign, got {value}")

    def _where(self, arg: Argument) -> str:
        return f"entry {self._name!r}, argument {arg.name!r}"

    def _argument_list(self, arguments: Mapping[str, Any]) -> Any:
        import iree.runtime as rt

        args = self._entry.args
        views = self._tensors.put_in({arg.name: arguments[arg.name] for arg in args if arg.kind == "tensor"})
        states = tuple(arguments[arg.name] for arg in args if arg.kind == "state")
        handles = {arg.name: arguments[arg.name].handle for arg in args if arg.kind in ("state", "buffer")}
        if self._cached is not None and all(a is b for a, b in zip(self._cached[0], states, strict=True)):
            return self._cached[1]
        packed = rt.VmVariantList(len(args))
        for arg in args:
            value = arguments[arg.name]
            if arg.kind in ("state", "buffer"):
                packed.push_ref(handles[arg.name])
            elif arg.kind == "tensor":
                packed.push_ref(views[arg.name])
            elif arg.dtype == "f32":
                packed.push_float(float(value))
            else:
                packed.push_int(int(value))
        if self._reusable:
            self._cached = (states, packed)
        return packed

    def _invoke(self, packed: Any) -> Results:
        import iree.runtime as rt

        if self._context is None:
            raise DeviceError(f"entry {self._name!r} belongs to a device that is closed")
        returned = rt.VmVariantList(len(self._entry.results))
        try:
            call_behind_workers(self._context.invoke, self._function, packed, returned)
            places = {r.name: i for i, r in enumerate(self._entry.results) if r.kind == "tensor"}
            return dict(zip(places, self._copy_out(returned, places.values()), strict=True))
        except BaseException as error:
            traceback.clear_frames(error.__traceback__)  # results have to go before their device: keep none here
            if isinstance(error, RuntimeError) and not isinstance(error, DeviceError):
                raise device_error(self._device, f"entry {self._name!r}", error) from error
            if isinstance(error, (ValueError, IndexError)):  # what was called differs from what was checked
                raise ArtifactError(
                    f"entry {self._name!r} is not what the manifest of {self._artifact} says: {error}; compile the "
                    "artifact again"
                ) from error
            raise
        finally:
            del returned

    def _copy_out(self, returned: Any, places: Iterable[int]) -> list[npt.NDArray[Any]]:
        import iree.runtime as rt

        return self._tensors.take_out([returned.get_as_object(i, rt.HalBufferView) for i in places])


_CHECKS: dict[str, Callable[[_BoundEntry, Argument, Any], None]] = {
    "state": _BoundEntry._check_state,
    "buffer": _BoundEntry._check_buffer,
    "tensor": _BoundEntry._check_tensor,
    "scalar": _BoundEntry._check_scalar,
}
"""The check of each kind of argument; kept outside the objects, which would otherwise refer to themselves and live on
until a garbage collection, with all the memory they hold."""
