"""CPUs: this machine's, and named levels that a compiler elsewhere can compile for."""

import functools
import json
import platform
import re
from collections.abc import Iterable
from pathlib import Path

from trainc.compiler.cache import CompileCache, key_parts
from trainc.compiler.iree import compiler_identity, run_iree_compile
from trainc.compiler.targets.target import Target
from trainc.core.errors import CompileError

HOST = "cpu"
"""The target that is the CPU of this machine."""

_FLAGS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-opt-level=O3",
    "--iree-llvmcpu-stack-allocation-limit=65536",
    "--iree-llvmcpu-debug-symbols=false",  # symbol tables differ from one compile to the next
)
_HOST_FLAGS = (*_FLAGS, "--iree-llvmcpu-target-cpu=host")

_V2 = "cmov crc32 cx16 cx8 fxsr mmx popcnt sahf sse sse2 sse3 sse4.1 sse4.2 ssse3 x87".split()
_V3 = [*_V2, *"avx avx2 bmi bmi2 f16c fma lzcnt movbe xsave".split()]
_V4 = [*_V3, *"avx512bw avx512cd avx512dq avx512f avx512vl".split()]
_LEVELS = {
    "x86-64-v2": ("x86_64", "x86-64-v2", _V2),
    "x86-64-v3": ("x86_64", "x86-64-v3", _V3),
    "x86-64-v4": ("x86_64", "x86-64-v4", _V4),
    "aarch64": ("aarch64", "generic", ["fp-armv8", "neon"]),
}
"""By name: instruction set, the compiler's name of the CPU, and the features its code may use."""

NAMES = (HOST, *_LEVELS)
ALIASES: dict[str, str] = {}

_BF16_PRODUCTS = "avx512bf16"  # the one CPU feature with which the compiler has fast products of bfloat16
_WIDER_VECTORS = (("avx512f", 64), ("avx", 32))
_VECTOR_BYTES = 16  # of SSE and NEON
_QUERY_TIMEOUT_S = 120.0
_CPU_NAME = re.compile(r'\bcpu = "([^"]*)"')
_CPU_FEATURES = re.compile(r'\bcpu_features = "([^"]*)"')
_CPUINFO = Path("/proc/cpuinfo")
_CPUINFO_FIELDS = ("vendor_id", "cpu family", "model", "model name", "flags", "CPU implementer", "CPU part", "Features")


def find(name: str) -> Target:
    """Return a CPU target by its name in `NAMES`.

    Raises:
        CompileError: The compiler is absent or cannot tell what this machine is.
    """
    if name == HOST:
        arch, features = host_cpu()
        return cpu_target(name, arch, features, _HOST_FLAGS, host=f"{arch} {','.join(features)}")
    instructions, arch, listed = _LEVELS[name]
    flags = (
        *_FLAGS,
        f"--iree-llvmcpu-target-triple={instructions}-unknown-unknown-eabi-elf",
        f"--iree-llvmcpu-target-cpu={arch}",
    )
    return cpu_target(name, name, tuple(sorted(listed)), flags)


def cpu_target(name: str, arch: str, features: Iterable[str], flags: tuple[str, ...] = (), host: str = "") -> Target:
    """Return the target of a CPU; bfloat16 is refused where it would be emulated, a hundred times slower than float32.

    Args:
        name: Name of the target.
        arch: Name of the CPU.
        features: Its features by the compiler's names.
        flags: Flags of iree-compile.
        host: As for `Target`.
    """
    features = tuple(features)
    lacking = f"it needs a CPU with AVX512_BF16, which {arch} has not"
    refused = {} if _BF16_PRODUCTS in features else {"bf16": lacking}
    return Target(
        name,
        "cpu",
        "local-task",
        arch,
        features,
        vector_bytes=_vector_bytes(features),
        refused=refused,
        host=host,
        _flags=flags,
    )


def _vector_bytes(features: tuple[str, ...]) -> int:
    return next((width for feature, width in _WIDER_VECTORS if feature in features), _VECTOR_BYTES)


@functools.cache
def host_cpu() -> tuple[str, tuple[str, ...]]:
    """The compiler's name of this machine's CPU and the sorted features its code may use.

    The compiler is asked once per machine and compiler; the answer lies in the compile cache.

    Raises:
        CompileError: The compiler is absent or does not say.
    """
    parts = key_parts(
        program="module {}",
        flags=(*_HOST_FLAGS, "--compile-to=preprocessing"),
        compiler=compiler_identity(),
        pipeline=("host_cpu",),
        host=hardware(),
    )
    answer = json.loads(CompileCache().get_or_make(parts, _ask_compiler))
    return answer["cpu"], tuple(answer["features"])


def _ask_compiler() -> bytes:
    flags = (*_HOST_FLAGS, "--compile-to=preprocessing")
    text = run_iree_compile("module {}", flags, timeout_s=_QUERY_TIMEOUT_S, locations=None).decode()
    cpu, features = _CPU_NAME.search(text), _CPU_FEATURES.search(text)
    if cpu is None or features is None:
        raise CompileError(f"iree-compile should name the CPU of this machine ({platform.machine()}), but did not")
    return json.dumps({"cpu": cpu[1], "features": _enabled(features[1])}).encode()


def _enabled(features: str) -> list[str]:
    """Names that are on at the end of a list such as "+a,-b,+c": a name may come twice and the last sign counts."""
    signs = {item[1:]: item[0] for item in features.split(",") if item}
    return sorted(name for name, sign in signs.items() if sign == "+")


def hardware() -> str:
    """What the system says about the first processor, without what changes while it runs (clock, counters)."""
    try:
        first = _CPUINFO.read_text(errors="replace").split("\n\n")[0]
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    pairs = (line.partition(":") for line in first.splitlines())
    return "\n".join(f"{name.strip()}:{value.strip()}" for name, _, value in pairs if name.strip() in _CPUINFO_FIELDS)
