"""GPUs through Vulkan: SPIR-V 1.3 without extensions, within limits that every device of a name offers.

SPIR-V 1.3 also because a newer version lets a driver run a kernel with another subgroup size than it was made for.
"""

from trainc.compiler.targets.gpu import Gpu
from trainc.compiler.targets.target import Target

_FEATURES = "spirv:v1.3,cap:Shader"
_SHUFFLES = "shuffle|arithmetic"
_WIDE, _WIDE_STORAGE = "fp32|fp16|int64|int32|int16|int8", "b64|b32|b16|b8"
_PHONE, _PHONE_STORAGE = "fp32|fp16|int32|int16|int8", "b64|b32|b16"


def _known(arch: str, subgroup: int, threads: int, kib: int, compute: str = _WIDE, storage: str = _WIDE_STORAGE) -> Gpu:
    sizes = (threads, threads, 64)
    return Gpu(arch, _FEATURES, compute, storage, subgroup, _SHUFFLES, sizes, threads, kib * 1024)


def _any_subgroup(arch: str, threads: int, kib: int, compute: str, storage: str) -> Gpu:
    sizes = (threads, threads, 64)
    return Gpu(arch, _FEATURES, compute, storage, 64, "none", sizes, threads, kib * 1024)


_GPUS = {
    "vulkan": _any_subgroup("vulkan", 256, 16, "fp32|int32", "b32"),
    "rdna3": _known("rdna3", 64, 1024, 32),
    "rdna4": _known("rdna4", 64, 1024, 32),
    "ampere": _known("sm_80", 32, 1024, 48),
    "ada": _known("sm_89", 32, 1024, 48),
    "adreno": _known("adreno", 64, 1024, 32, _PHONE, _PHONE_STORAGE),
    "valhall": _known("valhall1", 16, 512, 32, _PHONE),
    "moltenvk": _any_subgroup("moltenvk", 256, 32, "fp32|fp16|int32|int16|int8", "b32|b16|b8"),
    "lavapipe": _known("lavapipe", 8, 1024, 32, "fp64|fp32|fp16|int64|int32|int16|int8"),
}

NAMES = tuple(_GPUS)
ALIASES: dict[str, str] = {}


def find(name: str) -> Target:
    """Return a Vulkan target by its name in `NAMES`."""
    return _GPUS[name].target(name, "vulkan", "vulkan-spirv", "vulkan-spirv-fb")
