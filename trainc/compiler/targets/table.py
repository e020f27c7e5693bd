"""The table of targets: names, aliases, and finding one."""

import dataclasses
import difflib
from collections.abc import Callable, Mapping

from trainc.compiler.targets import cpu, cuda, metal, rocm, vulkan
from trainc.compiler.targets.target import Target
from trainc.core.errors import UnsupportedError

_FAMILIES = (cpu, cuda, rocm, vulkan, metal)
_FIND: Mapping[str, Callable[[str], Target]] = {name: family.find for family in _FAMILIES for name in family.NAMES}
ALIASES: Mapping[str, str] = {alias: name for family in _FAMILIES for alias, name in family.ALIASES.items()}
"""Other names of targets, by what people call the cards."""


def target_names() -> tuple[str, ...]:
    """The targets, without their aliases."""
    return tuple(_FIND)


def aliases_of(name: str) -> tuple[str, ...]:
    """Other names of a target."""
    return tuple(alias for alias, known in ALIASES.items() if known == name)


def find_target(name: str) -> Target:
    """Return a target by its name or an alias; "cpu" is the CPU of this machine.

    Returns:
        The target. Its name is the one that was given, so an artifact calls its modules what the user called them.

    Raises:
        UnsupportedError: No target has the name.
        CompileError: The compiler is absent or cannot tell what this machine is.
    """
    known = ALIASES.get(name, name)
    if known not in _FIND:
        near = difflib.get_close_matches(name.lower(), [*_FIND, *ALIASES], n=1, cutoff=0.5)
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise UnsupportedError(f"no target is called {name!r}; {meant}`trainc targets` lists them")
    return dataclasses.replace(_FIND[known](known), name=name)
