"""What this machine can do at most, measured: the yardstick of a profile.

The work is cut into parts that take less than a millisecond and the best part counts, so that other work on the machine
disturbs little. It runs in a process of its own, where NumPy's library is held to one thread and nothing else waits.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

_SIDE = 384
_COPY_BYTES = 4 * 2**20
_COPIES = 16
"""Places that are copied in turn: by the time the first comes again the caches hold none of it."""
_ROUNDS = 25
_TIMEOUT_S = 120.0
_ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)


@dataclass(frozen=True)
class Limits:
    """Peaks of a machine.

    Attributes:
        flops_per_s: Of float32 matrix products by NumPy's library: one thread's times the number of threads. A
            multiplication with addition counts as two.
        bytes_per_s: Of a copy by all threads between places that are in no cache; bytes read and bytes written both
            count.
    """

    flops_per_s: float
    bytes_per_s: float

    def least_s(self, flops: int, size_bytes: int) -> float:
        """The time below which work of this size cannot come unless its data is in the caches."""
        return max(flops / self.flops_per_s, size_bytes / self.bytes_per_s)


def measure_limits(threads: int) -> Limits:
    """Measure the peaks for a number of threads; takes about a second."""
    done = subprocess.run(
        [sys.executable, "-P", __file__, str(threads)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=os.environ | _ONE_THREAD,
        timeout=_TIMEOUT_S,
        check=True,
    )
    return Limits(**json.loads(done.stdout))


def _measure(threads: int) -> dict[str, float]:
    left, right, product = (np.full((_SIDE, _SIDE), 0.5, np.float32) for _ in range(3))
    product_s = min(_seconds(np.matmul, left, right, product) for _ in range(8 * _ROUNDS))
    source, target = (np.full((_COPIES, threads, _COPY_BYTES), value, np.uint8) for value in (1, 2))
    with ThreadPoolExecutor(threads) as pool:

        def copy(place: int) -> None:
            list(pool.map(np.copyto, target[place], source[place]))

        copy_s = min(_seconds(copy, index % _COPIES) for index in range(_ROUNDS * _COPIES))
    return {
        "flops_per_s": threads * 2 * _SIDE**3 / product_s,
        "bytes_per_s": 2 * threads * _COPY_BYTES / copy_s,
    }


def _seconds(work: Callable[..., object], *arguments: object) -> float:
    start = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - start


if __name__ == "__main__":
    print(json.dumps(_measure(int(sys.argv[1]))))
