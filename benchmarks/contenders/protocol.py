"""How a benchmark talks to a contender that runs in a process of its own: one JSON object a line, over pipes.

The contender waits in a blocking read between its turns, so it uses no processor while another one is measured; every
answer says how much processor time it used since its last one. Only the standard library is used here, for contenders
share no other package.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parents[2]


class Contender(Protocol):
    """One training run that can be stepped."""

    facts: dict[str, Any]

    def step(self) -> float:
        """Takes one training step on the benchmark's batch and returns the loss before the update."""


def serve(prepare: Callable[[dict[str, Any]], Contender]) -> None:
    """Runs a contender until its standard input ends.

    The first line is the job for `prepare`; each following one asks for a number of steps.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # stray prints must not end up between the answers
    job = json.loads(sys.stdin.readline())
    start_s = time.perf_counter()
    contender = prepare(job)
    _send(answers, {**contender.facts, "setup_s": time.perf_counter() - start_s})
    idle_since_s = time.process_time()
    for line in sys.stdin:
        started_s = time.process_time()
        answer = _run_steps(contender, json.loads(line)["steps"])
        _send(answers, {**answer, "idle_cpu_s": started_s - idle_since_s, "peak_rss_bytes": peak_rss_bytes()})
        idle_since_s = time.process_time()


def _run_steps(contender: Contender, steps: int) -> dict[str, Any]:
    losses, times_s = [], []
    cpu_s = time.process_time()
    for _ in range(steps):
        start_s = time.perf_counter()
        losses.append(contender.step())
        times_s.append(time.perf_counter() - start_s)
    return {"losses": losses, "times_s": times_s, "cpu_s": time.process_time() - cpu_s}


def _send(answers: Any, value: Mapping[str, Any]) -> None:
    answers.write(json.dumps(value) + "\n")
    answers.flush()


def peak_rss_bytes() -> int:
    """Largest resident set of this process so far."""
    # Where it exists this is the better source: the other one starts at the peak of the process that started this one.
    peak = _status_bytes("VmHWM")
    if peak is not None:
        return peak
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def held_bytes() -> int | None:
    """Resident set of this process after freed memory went back to the system, or None where that is not known."""
    gc.collect()
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)
    return _status_bytes("VmRSS")


def _status_bytes(field: str) -> int | None:
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return None
    return int(status.partition(f"{field}:")[2].split()[0]) * 1024


class Process:
    """A contender in its own process, seen from the benchmark.

    Args:
        module: Module to run, such as "benchmarks.contenders.torch_step".
        job: What its `prepare` is given.
        python: The interpreter to run it with.
        environment: Variables to set in addition to the caller's.

    Attributes:
        facts: What the contender said about itself once it was ready, and `setup_s`, how long that took.

    Raises:
        RuntimeError: The contender ended before it was ready.
    """

    def __init__(self, module: str, job: Mapping[str, Any], python: str, environment: Mapping[str, str]) -> None:
        self._module = module
        self._process = subprocess.Popen(
            [python, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **environment},
        )
        self.facts = self._ask(job)

    def run(self, steps: int) -> dict[str, Any]:
        """Takes steps and returns losses, times_s (one a step), cpu_s, idle_cpu_s and peak_rss_bytes."""
        return self._ask({"steps": steps})

    def close(self) -> None:
        """Ends the process and waits for it."""
        self._process.stdin.close()
        self._process.stdout.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        try:
            _send(self._process.stdin, question)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self.close()
            raise RuntimeError(f"{self._module} ended with status {self._process.returncode} instead of answering")
        return json.loads(line)
