"""What a report says of the machine, and how much other programs used it meanwhile."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any

# Other programs may use this much of all processors before the report says that the figures are not to be quoted.
FOREIGN_SHARE = 0.05


def describe() -> dict[str, Any]:
    """The machine: processor, number of processors, memory, system and Python."""
    return {
        "processor": processor(),
        "processors": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def processor() -> str:
    """Name of the processor, as far as the system says."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def machine_line(machine: dict[str, Any], threads: int) -> str:
    """The machine and the number of threads used, in one line."""
    return (
        f"{machine['processor']}, {machine['processors']} processors, {machine['memory_bytes'] / 1e9:.0f} GB, "
        f"{machine['system']}, Python {machine['python']}; {threads} threads"
    )


class ForeignLoad:
    """Measures how much other programs use the processors, from its construction on."""

    def __init__(self) -> None:
        self._start_s, self._busy_s = time.monotonic(), _busy_time_s()

    def share(self, ours_s: float) -> float | None:
        """Share of all processors that went to others, or None where the system does not say.

        Args:
            ours_s: Processor time that was used meanwhile and is not foreign.
        """
        now_s = _busy_time_s()
        if now_s is None or self._busy_s is None:
            return None
        foreign_s = now_s - self._busy_s - ours_s
        return max(0.0, foreign_s / (time.monotonic() - self._start_s) / (os.cpu_count() or 1))


def _busy_time_s() -> float | None:
    """Time that all processors together have worked since the system started; None where the system does not say."""
    try:
        ticks = [int(field) for field in Path("/proc/stat").read_text(encoding="ascii").split("\n")[0].split()[1:9]]
    except OSError:
        return None
    user, nice, system, _idle, _iowait, irq, softirq, steal = ticks
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def foreign_line(share: float | None) -> str:
    """What is to be said of other programs' work during the measurement."""
    if share is None:
        return "how busy the machine was otherwise is not known"
    line = f"other programs used {100 * share:.0f}% of the processors"
    if share > FOREIGN_SHARE:
        line += ": do not quote these figures (contention slows torch more, whose threads spin while they wait)"
    return line
