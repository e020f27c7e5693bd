"""Keeping freed memory in the process, so that a step's large temporaries do not fault their pages in each time."""

import ctypes
import functools
import platform
import sys

# Settings of glibc: the environment variable it reads at the start, the parameter of mallopt(3), and the value.
_SETTINGS = (
    ("MALLOC_MMAP_MAX_", -4, 0),
    ("MALLOC_TRIM_THRESHOLD_", -1, 2**31 - 1),
    ("MALLOC_TOP_PAD_", -2, 256 * 2**20),
)

ENVIRONMENT = {variable: str(value) for variable, _, value in _SETTINGS}
"""What makes another program keep its freed memory as `keep_freed_memory` does for this process."""


@functools.cache
def keep_freed_memory() -> bool:
    """Tell glibc to serve large blocks from its heap and to keep that heap when blocks are freed.

    It works only before the first large block is taken. Other C libraries are left as they are.

    Returns:
        Whether glibc took the settings.
    """
    if not _is_glibc():
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all([mallopt(parameter, value) == 1 for _, parameter, value in _SETTINGS])


def give_back_freed_memory() -> None:
    """Return to the system what is free now, for use where freed pieces are too small for what comes next.

    Only glibc is asked; elsewhere nothing happens.
    """
    if _is_glibc():
        ctypes.CDLL(None).malloc_trim(0)


@functools.cache
def _is_glibc() -> bool:
    return sys.platform == "linux" and platform.libc_ver()[0] == "glibc"
