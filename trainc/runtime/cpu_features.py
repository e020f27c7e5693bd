"""What the processor of this machine can do, in the compiler's words."""

import functools
from collections.abc import Iterable
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")

# Features whose name in /proc/cpuinfo is not the compiler's name with "_" for "." and "-".
_CPUINFO_NAMES = {
    "64bit": "lm",
    "bmi": "bmi1",
    "crc32": "sse4_2",
    "lzcnt": "abm",
    "pclmul": "pclmulqdq",
    "prfchw": "3dnowprefetch",
    "rdrnd": "rdrand",
    "sahf": "lahf_lm",
    "sha": "sha_ni",
    "sse3": "pni",
    "x87": "fpu",
    "avx512bf16": "avx512_bf16",
    "avx512bitalg": "avx512_bitalg",
    "avx512fp16": "avx512_fp16",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni",
    "avx512vp2intersect": "avx512_vp2intersect",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avxvnni": "avx_vnni",
    # AArch64
    "neon": "asimd",
    "fp-armv8": "fp",
    "fullfp16": "asimdhp",
    "fp16fml": "asimdfhm",
    "dotprod": "asimddp",
    "rdm": "asimdrdm",
    "lse": "atomics",
    "crc": "crc32",
    "complxnum": "fcma",
    "rcpc": "lrcpc",
    "ccpp": "dcpop",
    "sha2": "sha2",
}

# Only these decide whether compiled code runs: the compiler's other features are tuning, instructions for operating
# systems, or never come out of code for tensors, and machines list them unreliably.
_X86_PREFIXES = ("sse", "avx", "amx")
_DECISIVE = frozenset(
    """adx aes bmi bmi2 cx16 f16c fma fma4 gfni lzcnt movbe pclmul popcnt sha ssse3 vaes vpclmulqdq xop
    neon fp-armv8 fullfp16 fp16fml dotprod rdm lse crc sve sve2 bf16 i8mm complxnum sme""".split()
)


def decides(feature: str) -> bool:
    """Tell whether code compiled with a feature may fail on a processor without it."""
    return feature in _DECISIVE or feature.startswith(_X86_PREFIXES)


@functools.cache
def machine() -> tuple[str, frozenset[str]] | None:
    """Name and flags of this processor from /proc/cpuinfo, or None where a system has no such file."""
    try:
        lines = CPUINFO.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return None
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in reversed(lines))}
    flags = fields.get("flags") or fields.get("Features")
    if not flags:
        return None
    return fields.get("model name", "an unnamed processor"), frozenset(flags.split())


def missing(features: Iterable[str]) -> list[str]:
    """The decisive features, by the compiler's names, that this processor lacks; [] where it cannot be known."""
    here = machine()
    if here is None:
        return []
    wanted = [feature.removeprefix("+") for feature in features if not feature.startswith("-")]
    return [feature for feature in wanted if decides(feature) and _cpuinfo_name(feature) not in here[1]]


def _cpuinfo_name(feature: str) -> str:
    return _CPUINFO_NAMES.get(feature) or feature.replace(".", "_").replace("-", "_")
