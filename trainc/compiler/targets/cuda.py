"""NVIDIA GPUs through CUDA: PTX, which the driver assembles for the card it finds, if that is no older."""

from trainc.compiler.targets.gpu import Gpu
from trainc.compiler.targets.target import Target

_CARDS = {  # the version of PTX it needs, and the most memory of a workgroup in KiB, by NVIDIA's documentation
    "sm_80": ("+ptx76", 163),
    "sm_86": ("+ptx76", 99),
    "sm_89": ("+ptx84", 99),
    "sm_90": ("+ptx80", 227),
}

_BF16_PRODUCTS = "NV_MMA_SYNC_F32_16x8x16_BF16"  # of the tensor cores, from sm_80 on; sums are float32

NAMES = tuple(_CARDS)
ALIASES = {
    "cuda": "sm_80",
    "a100": "sm_80",
    "l40s": "sm_89",
    "rtx4090": "sm_89",
    "h100": "sm_90",
    "h200": "sm_90",
}


def find(name: str) -> Target:
    """Return a CUDA target by its name in `NAMES`."""
    ptx, kib = _CARDS[name]
    gpu = Gpu(
        arch=name,
        features=ptx,
        compute="fp64|fp32|fp16|int64|int32|int16|int8",
        storage="b64|b32|b16|b8",
        subgroup=32,
        operations="shuffle|arithmetic",
        sizes=(1024, 1024, 64),
        threads=1024,
        workgroup_bytes=kib * 1024,
        counts=(2147483647, 65535, 65535),
        matrix=_BF16_PRODUCTS,
    )
    return gpu.target(name, "cuda", "cuda", "cuda-nvptx-fb")
