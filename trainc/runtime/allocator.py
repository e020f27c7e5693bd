"""Keeping freed memory in the process, so that a step's large temporaries do not fault their pages in each time."""

import ctypes
import functools
import platform
import sys

# The parameters of glibc's mallopt(3).
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_MAX = -4

_KEEP_ALL_BYTES = 2**31 - 1
_GROW_BYTES = 256 * 2**20


@functools.cache
def keep_freed_memory() -> bool:
    """Tell glibc to serve large blocks from its heap and to keep that heap when blocks are freed.

    It works only before the first large block is taken. Other C libraries are left as they are.

    Returns:
        Whether glibc took the settings.
    """
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, _KEEP_ALL_BYTES), (_M_TOP_PAD, _GROW_BYTES))
    return all([mallopt(name, value) == 1 for name, value in settings])
