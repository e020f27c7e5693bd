"""AMD GPUs through ROCm's HIP: code for one kind of GPU, by the compiler's name."""

from trainc.compiler.targets.gpu import OPT_LEVEL
from trainc.compiler.targets.target import Target

_WAVES = {"gfx90a": (64,), "gfx942": (64,), "gfx950": (64,), "gfx1100": (32, 64), "gfx1201": (32, 64)}
"""Subgroup sizes by GPU; where there are two, every kernel carries the one it was made for."""

_WORKGROUP_BYTES = {"gfx950": 163840}
_THREADS = 1024

NAMES = tuple(_WAVES)
ALIASES = {"rocm": "gfx942", "mi300x": "gfx942", "rx7900xtx": "gfx1100"}


def find(name: str) -> Target:
    """Return a ROCm target by its name in `NAMES`."""
    return Target(
        name,
        "rocm",
        "hip",
        name,
        subgroup_sizes=_WAVES[name],
        workgroup_bytes=_WORKGROUP_BYTES.get(name, 65536),
        workgroup_threads=_THREADS,
        _flags=("--iree-hal-target-device=hip", f"--iree-rocm-target={name}", OPT_LEVEL),
    )
