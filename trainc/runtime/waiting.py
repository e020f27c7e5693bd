"""Calling the device runtime so that a thread that waits for a device does not push the device's workers aside.

The worker that ends the last piece of a call wakes the waiting thread, and only then notes that it is done with it;
the woken thread spins until it sees the note. Where the system wakes it on the worker's own processor and in the
worker's place, it spins until its time slice is over: 2 to 5 ms in which nothing is computed. Under Linux's policy for
batch work a woken thread does not take the place of a running one.
"""

import os
from collections.abc import Callable
from typing import Any

_BATCH = getattr(os, "SCHED_BATCH", None)


def call_behind_workers(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that waits for a device; the calling thread does not push others aside while it does.

    Threads that have a scheduling policy of their own keep it, and so do all where the system has no such policy.

    Args:
        function: What to call.
        *arguments: Its arguments.

    Returns:
        What it returns.
    """
    if not _give_way():
        return function(*arguments)
    try:
        return function(*arguments)
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _give_way() -> bool:
    """Let the calling thread wait its turn when it is woken; whether that changed anything."""
    if _BATCH is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    try:
        os.sched_setscheduler(0, _BATCH, os.sched_param(0))
    except OSError:
        return False
    return True
