"""Says what a device is and verifies an artifact on it: one JSON object a line, in a process of its own.

    python -m benchmarks.gpu.verify ARTIFACT DEVICE

A process of its own because a device may hang, and no call to it can then be ended in any other way.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any


def main(artifact_path: str, device_name: str) -> int:
    """Prints the device, each entry before it is run, and at last every output."""
    from trainc.runtime.artifact import Artifact
    from trainc.runtime.device import open_device
    from trainc.runtime.program import Program
    from trainc.runtime.verify import verify

    device = open_device(device_name)
    _print({"device": dataclasses.asdict(device.info)})
    program = Program(Artifact.open(artifact_path), device)
    _print({"target": program.target_name})
    compared = verify(program, lambda line: _print({"running": line}))
    _print({"outputs": [{**dataclasses.asdict(one), "ok": one.ok, "error": _number(one.error)} for one in compared]})
    return 0


def _number(value: float) -> float | None:
    """A number as JSON has it; what is not finite is none."""
    return value if abs(value) < float("inf") else None


def _print(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
