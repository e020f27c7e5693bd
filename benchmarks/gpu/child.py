"""Running a part of the check in a process of its own, for a limited time, and keeping what it said until its end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

_LAST_LINES = 6


@dataclass(frozen=True)
class Said:
    """What a part of the check said.

    Attributes:
        answers: The JSON objects that it wrote, in order.
        time_s: Seconds that it took.
        problem: Why it did not come to its end, in words; "" if it did.
    """

    answers: tuple[Mapping[str, Any], ...]
    time_s: float
    problem: str


def run_part(
    module: str,
    arguments: Sequence[str] = (),
    questions: Sequence[Mapping[str, Any]] = (),
    *,
    limit_s: float,
    python: str = sys.executable,
) -> Said:
    """Run a module that answers on standard output with one JSON object a line.

    Args:
        module: The module, for example "benchmarks.gpu.verify".
        arguments: Its arguments.
        questions: What it reads from standard input, one JSON object a line.
        limit_s: Seconds after which it is killed.
        python: The interpreter to run it with.
    """
    start_s = time.monotonic()
    if limit_s <= 0:
        return Said((), 0.0, "there was no time left for it")
    command = [python, "-m", module, *arguments]
    text = "".join(f"{json.dumps(question)}\n" for question in questions)
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, errors="replace", cwd=ROOT, start_new_session=True
    )
    problem = ""
    try:
        out, err = process.communicate(text, timeout=limit_s)
    except subprocess.TimeoutExpired:
        problem = f"it was stopped after {limit_s:.0f} s"
        _kill(process)
        out, err = process.communicate()
    except BaseException:
        _kill(process)
        raise
    if process.returncode and not problem:
        last = " | ".join(line.strip() for line in err.strip().splitlines()[-_LAST_LINES:])
        problem = f"it ended with status {process.returncode}: {last}"
    return Said(_answers(out), time.monotonic() - start_s, problem)


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill a part with the processes that it may have started, such as those that compile for torch."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _answers(text: str) -> tuple[Mapping[str, Any], ...]:
    """The objects in the lines of a text; a last line that was cut off is left out."""
    found = []
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return tuple(found)
