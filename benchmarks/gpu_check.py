"""Checks an artifact on a device in less than 8 minutes: right values, the CPU's losses, and speed against torch.

    python benchmarks/gpu_check.py ARTIFACT --device cuda [--bf16 ARTIFACT] [--curve FILE] [--no-torch] [--out FILE]
    python benchmarks/gpu_check.py ARTIFACT --record FILE

It needs the packages that an artifact runs with, and torch for the comparison; no compiler. Each part runs in a process
of its own for a limited time, and after each the result (JSON) is written anew, so it is never lost. The losses are
compared with those of the artifact's CPU module, or with a curve that --record wrote on another machine. --bf16 takes
the same model compiled with --precision bf16, which is checked and timed beside it.

Exit status: 0 if all is right, 6 if a value or a loss is wrong, 5 if the device fails or something is not finished.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # so that it also runs as a plain script

from benchmarks import machine
from benchmarks.gpu import parts
from benchmarks.gpu.job import TORCH_DEVICES, Job, identity
from trainc.core.errors import TraincError
from trainc.runtime.artifact import Artifact
from trainc.runtime.device import default_threads

LIMIT_S = 450.0
PACKAGES = ("trainc", "iree-base-runtime", "numpy", "safetensors", "torch")


def main() -> int:
    """Runs the check; returns the exit status."""
    options = parse_options()
    try:
        artifact = Artifact.open(options.artifact)
        with tempfile.TemporaryDirectory(prefix="trainc-gpu-check-") as folder:
            job = Job.write(options.artifact, artifact.manifest, Path(folder), default_threads())
            narrow = job.narrow(options.bf16, Artifact.open(options.bf16).manifest) if options.bf16 else None
            return record(options, job) if options.record else check(options, job, narrow)
    except (TraincError, OSError) as error:
        print(f"gpu_check: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 1)


def parse_options() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("artifact", type=Path, help="a compiled artifact")
    parser.add_argument("--device", default="cuda", help="cpu, cuda, rocm, vulkan or metal, or with a number (cuda:1)")
    parser.add_argument("--bf16", type=Path, help="the same model compiled with --precision bf16")
    parser.add_argument("--steps", type=int, default=200, help="training steps that are compared (default 200)")
    parser.add_argument("--curve", type=Path, help="losses that --record wrote, instead of training on this CPU")
    parser.add_argument("--record", type=Path, help="train on this CPU, write the losses to this file, and end")
    parser.add_argument("--no-torch", action="store_true", help="do not compare the speed with torch")
    parser.add_argument("--torch-python", default=sys.executable, help="interpreter that has torch, if not this one")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help=f"seconds for all parts (default {LIMIT_S:.0f})")
    parser.add_argument("--out", type=Path, default=Path("gpu-check.json"), help="the result (default gpu-check.json)")
    return parser.parse_args()


def record(options: argparse.Namespace, job: Job) -> int:
    """Trains on the CPU and writes the losses."""
    found = parts.train(job, "cpu", options.steps, options.limit)
    if found["problem"]:
        print(f"gpu_check: no curve: {found['problem']}", file=sys.stderr)
        return 5
    curve = {"identity": identity(job.manifest), "processor": machine.processor(), "losses": found["losses"]}
    write_json(options.record, curve)
    print(f"{options.record}: losses of {len(found['losses'])} steps, {found['losses'][-1]:.4f} at the end")
    return 0


def check(options: argparse.Namespace, job: Job, narrow: Job | None) -> int:
    """Runs all parts, writing the result after each.

    Args:
        options: The command line.
        job: What the parts are given.
        narrow: The same with the artifact in bf16, if there is one.
    """
    end_s = time.monotonic() + options.limit
    report: dict[str, Any] = {"artifact": options.artifact.name, "asked_device": options.device, "complete": False}
    report["precision"] = job.manifest.precision
    report |= {"machine": machine.describe(), "versions": versions(), "compiler": job.manifest.compiler}

    def keep(name: str, value: Any) -> None:
        report[name] = value
        write_json(options.out, report)
        print(parts.line(name, value), file=sys.stderr, flush=True)

    def left_s(at_most_s: float) -> float:
        return min(at_most_s, end_s - time.monotonic())

    curve = parts.read_curve(options.curve, job) if options.curve else None
    for one, suffix in ((job, ""), (narrow, " bf16")):
        if one is None:
            continue
        keep(f"verify{suffix}", parts.verify(one, options.device, left_s(120)))
        keep(f"training{suffix}", parts.train(one, options.device, options.steps, left_s(100)))
        if "cpu_training" not in report:
            keep("cpu_training", curve or parts.train(job, "cpu", options.steps, left_s(60)))
        losses = report[f"training{suffix}"]["losses"], report["cpu_training"]["losses"]
        keep(f"losses{suffix}", parts.compare_losses(*losses, one.manifest.precision))
        keep(f"trainc{suffix}", parts.time_trainc(one, options.device, left_s(40)))
    if not options.no_torch:
        family, _, number = options.device.partition(":")
        torch_device = TORCH_DEVICES.get(family, family) + (f":{number}" if number and family != "vulkan" else "")
        for name, form in parts.TORCH_FORMS.items():
            found = parts.time_torch(job, torch_device, form, left_s(form.limit_s), options.torch_python)
            beside = report["trainc bf16"] if form.narrow and narrow else report["trainc"]
            keep(name, found | parts.against(beside, found))
    report["complete"] = True
    keep("status", parts.status(report))
    return int(report["status"]["exit"])


def versions() -> dict[str, str | None]:
    """Python, the system, and every package that the figures depend on."""
    found: dict[str, str | None] = {"python": platform.python_version(), "system": platform.platform()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def write_json(path: Path, value: Any) -> None:
    """Writes a file, whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


if __name__ == "__main__":
    sys.exit(main())
