"""The targets a program can be compiled for, and what "this machine" means to the compiler."""

import functools
import json
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainc.compiler.cache import CompileCache, key_parts
from trainc.compiler.iree import compiler_identity, run_iree_compile
from trainc.core.errors import CompileError, UnsupportedError

_CPU_FLAGS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-opt-level=O3",
    "--iree-llvmcpu-stack-allocation-limit=65536",
    "--iree-llvmcpu-debug-symbols=false",  # symbol tables differ from one compile to the next
)
_BF16_PRODUCTS = "avx512bf16"  # the one CPU feature with which the compiler has fast products of bfloat16
_QUERY_TIMEOUT_S = 120.0
_CPU_NAME = re.compile(r'\bcpu = "([^"]*)"')
_CPU_FEATURES = re.compile(r'\bcpu_features = "([^"]*)"')
_CPUINFO = Path("/proc/cpuinfo")
_CPUINFO_FIELDS = ("vendor_id", "cpu family", "model", "model name", "flags", "CPU implementer", "CPU part", "Features")


@dataclass(frozen=True)
class Target:
    """A kind of device to compile for.

    Attributes:
        name: The name users give.
        driver: The driver that runs its modules.
        cpu: The compiler's name of the CPU, "" where the device is none.
        features: CPU features its code may use, sorted, by the compiler's names.
    """

    name: str
    driver: str
    cpu: str = ""
    features: tuple[str, ...] = ()
    _flags: tuple[str, ...] = field(default=(), repr=False)

    def flags(self) -> tuple[str, ...]:
        """Flags of iree-compile for this target."""
        return self._flags

    @property
    def host(self) -> str:
        """The CPU and its features as one text for cache keys, "" if the flags do not depend on the machine."""
        return f"{self.cpu} {','.join(self.features)}" if "--iree-llvmcpu-target-cpu=host" in self._flags else ""

    def check_precision(self, precision: str) -> None:
        """Refuse a precision that this target has no instructions for.

        Without them bfloat16 is emulated one number at a time, a hundred times slower than float32.

        Args:
            precision: "f32" or "bf16".

        Raises:
            UnsupportedError: The target cannot compute in it.
        """
        if precision == "bf16" and _BF16_PRODUCTS not in self.features:
            raise UnsupportedError(
                f"precision 'bf16' needs a CPU with AVX512_BF16, which {self.cpu or self.name} has not; use 'f32'"
            )


def _cpu() -> Target:
    cpu, features = host_cpu()
    return Target("cpu", "local-task", cpu, features, _CPU_FLAGS)


_TARGETS: Mapping[str, Callable[[], Target]] = {"cpu": _cpu}


def target_names() -> tuple[str, ...]:
    """The names `find_target` knows."""
    return tuple(_TARGETS)


def find_target(name: str) -> Target:
    """Return a target by name; "cpu" is the CPU of this machine.

    Raises:
        UnsupportedError: No target has the name.
        CompileError: The compiler is absent or cannot tell what this machine is.
    """
    if name not in _TARGETS:
        raise UnsupportedError(f"target must be one of {list(_TARGETS)}, got {name!r}")
    return _TARGETS[name]()


@functools.cache
def host_cpu() -> tuple[str, tuple[str, ...]]:
    """The compiler's name of this machine's CPU and the sorted features its code may use.

    The compiler is asked once per machine and compiler; the answer lies in the compile cache.

    Raises:
        CompileError: The compiler is absent or does not say.
    """
    parts = key_parts(
        program="module {}",
        flags=(*_CPU_FLAGS, "--compile-to=preprocessing"),
        compiler=compiler_identity(),
        pipeline=("host_cpu",),
        host=hardware(),
    )
    answer = json.loads(CompileCache().get_or_make(parts, _ask_compiler))
    return answer["cpu"], tuple(answer["features"])


def _ask_compiler() -> bytes:
    flags = (*_CPU_FLAGS, "--compile-to=preprocessing")
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
