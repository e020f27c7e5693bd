"""Time by dispatch: an entry of an artifact under the profiler of the IREE runtime.

The profiler is not offered to Python, but the runtime package brings the programs `iree-benchmark-module`, which can
record, and `iree-profile`, which can read. They take the artifact's own module and the same arguments, flat buffers
included, so what is profiled is what trains.
"""

import importlib.util
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trainc.core.errors import DeviceError
from trainc.core.manifest import Argument
from trainc.runtime import allocator
from trainc.runtime.artifact import Artifact
from trainc.runtime.buffers import FlatBuffer
from trainc.runtime.device import Device

_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class DispatchTime:
    """What one dispatch of an entry took.

    Attributes:
        name: The compiler's name of it.
        calls: How often one call of the entry runs it.
        min_s: Its shortest time, from the start of its first part to the end of its last.
    """

    name: str
    calls: int
    min_s: float


def time_dispatches(
    artifact: Artifact, device: Device, entry: str, arguments: Mapping[str, object], rounds: int
) -> list[DispatchTime]:
    """Call an entry under the profiler.

    Args:
        artifact: The artifact.
        device: The device whose driver and number of threads to use.
        entry: The entry.
        arguments: One value for every argument by name, as for `Program.call`; left unchanged.
        rounds: How often to call it.

    Raises:
        DeviceError: The runtime package lacks the profiler, or it failed.
    """
    signature = artifact.manifest.entries[entry]
    _, target = artifact.target(device.info)
    with tempfile.TemporaryDirectory(prefix="trainc-profile-") as folder:
        recorded = str(Path(folder) / "profile")
        command = [
            f"--module={artifact.module_path(target.modules[signature.module])}",
            f"--function={signature.function}",
            f"--device={device.driver}",
            f"--task_topology_group_count={device.threads}",
            f"--benchmark_min_time={rounds}x",
            "--device_profiling_mode=host-execution,executable-metadata",
            f"--device_profiling_output={recorded}",
            *(_input(argument, arguments[argument.name], Path(folder)) for argument in signature.args),
        ]
        _run("iree-benchmark-module", *command)
        lines = _run("iree-profile", "dispatch", "--format=jsonl", recorded).splitlines()
    return _read([json.loads(line) for line in lines], entry, rounds)


def _input(argument: Argument, value: Any, folder: Path) -> str:
    """The option that passes a value; `&` marks a bare buffer, and memory goes through files."""
    if argument.kind == "scalar":
        return f"--input={float(value)!r}" if argument.dtype == "f32" else f"--input={int(value)}"
    array = value.flat if isinstance(value, FlatBuffer) else np.asarray(value)
    path = folder / f"{argument.name}.bin"
    array.tofile(path)
    shape = "x".join(map(str, array.shape))
    return f"--input={'&' if argument.kind == 'state' else ''}{shape}x{argument.dtype}=@{path}"


def _read(rows: list[dict[str, Any]], entry: str, rounds: int) -> list[DispatchTime]:
    """The dispatches that every call of the entry runs; what runs once, when the module is loaded, is left out."""
    found = [row for row in rows if row.get("type") == "host_dispatch_group" and row["count"] >= rounds]
    for row in found:
        if row["count"] % rounds:
            raise DeviceError(
                f"entry {entry!r}: dispatch {row['key']} was recorded {row['count']} times in {rounds} calls; the "
                "profile is not complete"
            )
    return [DispatchTime(row["key"], row["count"] // rounds, row["min_ns"] / 1e9) for row in found]


def _run(tool: str, *arguments: str) -> str:
    command = [str(_tool_path(tool)), *arguments]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=os.environ | allocator.ENVIRONMENT,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DeviceError(f"{tool} did not end within {_TIMEOUT_S:g} s and was stopped") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise DeviceError(
            f"{tool} failed with exit status {done.returncode}: {said[-1][:400] if said else 'no message'}"
        )
    return done.stdout.decode()


def _tool_path(tool: str) -> Path:
    spec = importlib.util.find_spec("iree._runtime_libs")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / tool
        if os.access(path, os.X_OK):
            return path
    raise DeviceError(f"a profile needs the program {tool}; this build of iree-base-runtime has none")
