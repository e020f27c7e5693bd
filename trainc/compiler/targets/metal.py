"""Apple GPUs through Metal: source text of Metal's language, which the system compiles when it is loaded."""

from trainc.compiler.targets.gpu import Gpu
from trainc.compiler.targets.target import Target

_GPU = Gpu(
    arch="apple",
    features="spirv:v1.3,cap:Shader",
    compute="fp32|fp16|int32|int16|int8",
    storage="b32|b16|b8",
    subgroup=32,
    operations="none",
    sizes=(256, 256, 64),
    threads=256,  # a pipeline with many registers may offer fewer than the GPU's 1024
    workgroup_bytes=32768,
)

NAMES = ("metal",)
ALIASES: dict[str, str] = {}


def find(name: str) -> Target:
    """Return the Metal target."""
    return _GPU.target(name, "metal", "metal-spirv", "metal-msl-fb", "--iree-metal-compile-to-metallib=false")
