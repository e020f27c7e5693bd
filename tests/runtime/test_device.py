"""Devices: opening them, and leaving without a word."""

import gc
import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import pytest

from trainc.core.errors import DeviceError, UsageError
from trainc.runtime import device as device_module
from trainc.runtime.allocator import ENVIRONMENT
from trainc.runtime.buffers import aligned_zeros, import_host
from trainc.runtime.device import Device, available_devices, find_device, open_device

ROOT = Path(__file__).resolve().parents[2]

USE = """if True:
    import sys, time
    import numpy as np
    from trainc.runtime.artifact import Artifact
    from trainc.runtime.device import open_device
    from trainc.runtime.program import Program

    device = open_device()
    program = Program(Artifact.open(sys.argv[1]), device)
    grads = program.new_state("params")
    kept = [grads, program]
    kept.append(kept)  # only the garbage collector would find this cycle
    def call(buffer):
        return program.call("norms", {"grads": buffer})
    call(grads)
    call(grads)
"""


def python(code: str, *arguments, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, env=os.environ | environment)


def test_the_cpu_is_there():
    assert "cpu" in available_devices()


def test_an_unknown_device_tells_what_is_there():
    with pytest.raises(DeviceError, match="no device 'npu' here; there is: cpu"):
        open_device("npu")


def test_threads_are_fixed_at_the_first_opening(device):
    assert open_device("cpu") is device
    assert open_device("cpu", threads=device.threads) is device
    more = device.threads + 1
    with pytest.raises(DeviceError, match=f"run with {device.threads} threads .* {more} were"):
        open_device("cpu", threads=more)
    with pytest.raises(UsageError, match="leave them out for device 'vulkan'"):
        open_device("vulkan", threads=2)
    with pytest.raises(UsageError, match="at least 1"):
        open_device("cpu", threads=0)


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("", 0),
        ("sys.exit(3)", 3),
        ("del program, device", 0),
        ("import builtins; builtins.kept = kept, program._entries['norms'], device.handle, device.instance", 0),
        ("from trainc.runtime.device import close_devices; close_devices(); close_devices()", 0),
        ("import threading; threading.Thread(target=lambda: (time.sleep(0.2), call(grads))).start()", 0),
    ],
)
def test_nothing_is_printed_at_exit(artifact_path, end, status):
    run = python(f"{USE}\n    {end}\n", artifact_path)
    assert (run.returncode, run.stdout, run.stderr) == (status, "", "")


@pytest.mark.parametrize(
    "end",
    [
        "raise ValueError('mine')",
        "call(None)",
        "1 / (call(grads)['block_max'][0] - call(grads)['block_max'][0]).item()",
    ],
)
def test_only_the_exception_is_printed(artifact_path, end):
    run = python(f"{USE}\n    {end}\n", artifact_path)
    assert run.returncode == 1
    lines = run.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1].split(":")[0].rpartition(".")[2] in ("ValueError", "DtypeError", "ZeroDivisionError")
    assert "nanobind" not in run.stderr


def test_an_exception_while_results_are_copied(artifact_path):
    code = f"""{USE}
    from trainc.runtime import program as module
    def fail(self, returned, places):
        raise KeyboardInterrupt
    module._BoundEntry._copy_out = fail
    call(grads)
"""
    run = python(code, artifact_path)
    assert run.returncode == -signal.SIGINT
    assert run.stderr.splitlines()[-1] == "KeyboardInterrupt"


def test_silent_after_sigterm(artifact_path):
    code = f"{USE}\n    print('ready', flush=True)\n    while True:\n        call(grads)\n"
    command = [sys.executable, "-c", code, artifact_path]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.05)
        process.terminate()
        assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == -signal.SIGTERM


def test_a_failing_callback_ends_in_its_own_traceback(artifact_path, data_file, tmp_path):
    options = json.dumps({"steps": 5, "action": "raise", "at": 2})
    command = [sys.executable, "-m", "tests.runtime.run_toy", artifact_path, data_file, tmp_path / "run", options]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1] == "RuntimeError: the callback failed"
    assert "nanobind" not in run.stderr


def test_after_closing_everything_says_so(artifact_path):
    code = f"""{USE}
    from trainc.core.errors import DeviceError
    from trainc.runtime.device import close_devices
    close_devices()
    for use in (lambda: call(grads), lambda: grads.handle, lambda: program.new_state("params"), lambda: device.handle):
        try:
            use()
        except DeviceError as error:
            print(error)
    print(grads.flat.sum())
"""
    run = python(code, artifact_path)
    assert (run.returncode, run.stderr) == (0, "")
    lines = run.stdout.splitlines()
    assert len(lines) == 5
    assert all("closed" in line for line in lines[:4])


def test_importing_the_package_loads_no_device_runtime():
    names = sorted(path.stem for path in (ROOT / "trainc/runtime").glob("*.py") if path.stem != "__init__")
    code = "import sys, importlib\n"
    code += f"for name in {names}: importlib.import_module('trainc.runtime.' + name)\n"
    code += "print([name for name in sys.modules if name.split('.')[0] in ('iree', 'matplotlib', 'safetensors')])"
    run = python(code)
    assert (run.stdout, run.stderr) == ("[]\n", "")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these settings")
@pytest.mark.parametrize(
    ("start", "environment"),
    [("from trainc.runtime.device import open_device; open_device()", {}), ("", ENVIRONMENT)],
    ids=["own process", "environment"],
)
def test_large_memory_is_kept_and_not_faulted_in_again(start, environment):
    code = f"""if True:
        import resource
        import numpy as np
        {start}
        def touch():  # one element of every page of 4 KiB
            np.empty(2**27, np.float32)[::1024] = 1
        touch()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(4):
            touch()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    """
    run = python(code, **environment)
    assert run.stderr == ""
    # Faulted in again, each array would be 131,072 pages or 256 huge ones. It is larger than what stays at the top of
    # the heap by one of the settings alone.
    assert int(run.stdout) < 100


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has these settings")
def test_neither_a_device_nor_what_was_freed_holds_memory():
    """A device takes 65 MB that it never touches; with settings made too early they would be resident."""
    code = """if True:
        from pathlib import Path
        import numpy as np
        from trainc.runtime.allocator import give_back_freed_memory
        from trainc.runtime.device import open_device
        def resident_bytes():
            return int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0]) * 1024
        import iree.runtime
        before = resident_bytes()
        open_device()
        opened = resident_bytes()
        freed, kept = np.ones(2**25, np.float32), np.ones(2**20, np.float32)  # 128 MiB below 4
        del freed
        give_back_freed_memory()
        print(opened - before, resident_bytes() - opened)
    """
    run = python(code)
    assert run.stderr == ""
    device_bytes, rest_bytes = map(int, run.stdout.split())
    assert device_bytes < 32 * 2**20
    assert rest_bytes < 16 * 2**20


def test_a_device_waits_until_no_worker_holds_host_memory():
    # A worker that drops the last handle after the device began to go would wait for the interpreter for ever.
    device = Device(find_device("cpu"), 1)
    held = [import_host(device, aligned_zeros((64,), np.float32))]
    dropped_s = []

    def drop_later():
        time.sleep(0.3)
        held.clear()
        dropped_s.append(time.monotonic())

    worker = threading.Thread(target=drop_later)
    worker.start()
    device.close()
    closed_s = time.monotonic()
    worker.join()
    assert closed_s >= dropped_s[0]


def test_a_device_does_not_wait_for_ever(monkeypatch):
    monkeypatch.setattr(device_module, "_LAST_DROPS_S", 0.1)
    device = Device(find_device("cpu"), 1)
    handle = import_host(device, aligned_zeros((64,), np.float32))
    start_s = time.monotonic()
    device.close()
    assert 0.1 <= time.monotonic() - start_s < 5.0
    del handle


def test_closing_leaves_the_device_to_the_system(monkeypatch):
    """Taking it down waits for its workers, and one that drops host memory waits for the interpreter."""

    class Handle:
        pass

    made = [Handle()]
    alive = weakref.ref(made[0])
    monkeypatch.setattr(device_module, "_create", lambda info, threads: (made.pop(), None, None))
    device = Device(find_device("cpu"), 1)
    device.close()
    gc.collect()
    assert alive() is not None
    with pytest.raises(DeviceError, match="is closed"):
        device.handle  # noqa: B018
