"""trainc compiles training: forward pass, backward pass and optimizer in one ahead-of-time artifact.

The names of `trainc.training` are also names of `trainc`. They are loaded when they are first used, so `import trainc`
costs nothing and pulls in neither a compiler nor a runtime.
"""

from typing import TYPE_CHECKING, Any

from trainc import training

if TYPE_CHECKING:
    from trainc.training import *  # noqa: F403

__version__ = "0.1.0"

__all__ = ["__version__", "training"]
__all__ += training.__all__


def __getattr__(name: str) -> Any:
    if name not in training.__all__:
        raise AttributeError(f"module 'trainc' has no attribute {name!r}; it offers {', '.join(__all__)}")
    value = getattr(training, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
