"""trainc compiles training: forward pass, backward pass and optimizer in one ahead-of-time artifact.

The names below are loaded when they are first used, so `import trainc` costs nothing and pulls in neither a compiler
nor a runtime.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "ConstantLR": "trainc.core.schedules",
    "Generator": "trainc.frontends.generator",
    "SambaConfig": "trainc.frontends.samba.config",
    "WarmupCosineLR": "trainc.core.schedules",
    "WarmupLinearLR": "trainc.core.schedules",
}

__all__ = ["ConstantLR", "Generator", "SambaConfig", "WarmupCosineLR", "WarmupLinearLR", "__version__"]

if TYPE_CHECKING:
    from trainc.core.schedules import ConstantLR, WarmupCosineLR, WarmupLinearLR
    from trainc.frontends.generator import Generator
    from trainc.frontends.samba.config import SambaConfig


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'trainc' has no attribute {name!r}; it offers {', '.join(__all__)}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
