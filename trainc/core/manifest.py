"""The manifest of a compiled artifact: what it holds, how its entries are called, what a device must offer.

A manifest is read strictly: a missing, unknown or impossible field is an `ArtifactError` that names it.
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from trainc.core.dtypes import DTYPE_NAMES
from trainc.core.errors import ArtifactError
from trainc.core.fields import DYNAMIC as DYNAMIC
from trainc.core.fields import Fields
from trainc.core.modes import NUMERIC_MODES
from trainc.core.selftest import SelfTest
from trainc.core.state_table import StateTable

FORMAT = "trainc-artifact"
FORMAT_VERSION = 2
SCALAR_DTYPES = ("f32", "i32")

_ARGUMENT_KINDS = ("state", "buffer", "tensor", "scalar")
_RESULT_KINDS = ("state", "tensor")
_SHA256 = re.compile(r"^[0-9a-f]{64}$")


def _selftest(value: object) -> SelfTest | None:
    return None if value is None else SelfTest.from_json(value)


def _refuse_constant(name: str) -> None:
    """For `json.loads`, which would take NaN and infinities."""
    raise ValueError(f"{name} is no number of JSON")


@dataclass(frozen=True)
class Argument:
    """One argument of an entry, in the order of the call.

    Attributes:
        name: The name a caller binds it by.
        kind: "state" (a whole flat buffer), "buffer" (memory of any length, used in place), "tensor" (an array copied
            in) or "scalar" (a number).
        shape: Its dimensions; `[size]` for a state, `()` for a scalar.
        dtype: Element type name.
        state: For a state, the table that lays it out; otherwise None.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    state: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The argument as plain JSON values."""
        value = {"name": self.name, "kind": self.kind, "shape": list(self.shape), "dtype": self.dtype}
        return value if self.state is None else value | {"state": self.state}

    @classmethod
    def from_json(cls, value: object, where: str) -> "Argument":
        """Read an argument; `where` names it in errors."""
        fields = Fields(value, where)
        kind = fields.choice("kind", _ARGUMENT_KINDS)
        state = fields.take("state", str) if kind == "state" else None
        name, shape, dtype = fields.take("name", str), fields.shape("shape"), fields.choice("dtype", DTYPE_NAMES)
        fields.done()
        if kind == "scalar" and (shape or dtype not in SCALAR_DTYPES):
            raise ArtifactError(f"manifest: {where} ({name}) must be a scalar of shape [], got {list(shape)} {dtype}")
        return cls(name, kind, shape, dtype, state)


@dataclass(frozen=True)
class Result:
    """One result of an entry.

    Attributes:
        name: Its name.
        kind: "tensor" (copied out) or "state" (a view of a buffer written in place, which callers ignore).
        shape: Its dimensions.
        dtype: Element type name.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: str

    def to_json(self) -> dict[str, Any]:
        """The result as plain JSON values."""
        return {"name": self.name, "kind": self.kind, "shape": list(self.shape), "dtype": self.dtype}

    @classmethod
    def from_json(cls, value: object, where: str) -> "Result":
        """Read a result; `where` names it in errors."""
        fields = Fields(value, where)
        result = cls(
            fields.take("name", str),
            fields.choice("kind", _RESULT_KINDS),
            fields.shape("shape"),
            fields.choice("dtype", DTYPE_NAMES),
        )
        fields.done()
        return result


@dataclass(frozen=True)
class Entry:
    """A function that an artifact offers.

    Attributes:
        function: Its name inside the module.
        module: The module that holds it, by its key in each target's `modules`.
        args: Its arguments in order.
        results: Its results in order.
    """

    function: str
    module: str
    args: tuple[Argument, ...]
    results: tuple[Result, ...]

    def to_json(self) -> dict[str, Any]:
        """The entry as plain JSON values."""
        return {
            "function": self.function,
            "module": self.module,
            "args": [arg.to_json() for arg in self.args],
            "results": [result.to_json() for result in self.results],
        }

    @classmethod
    def from_json(cls, name: str, value: object) -> "Entry":
        """Read an entry; `name` names it in errors."""
        where = f"entries.{name}"
        fields = Fields(value, where)
        args = [Argument.from_json(v, f"{where}.args[{i}]") for i, v in enumerate(fields.take("args", list))]
        results = [Result.from_json(v, f"{where}.results[{i}]") for i, v in enumerate(fields.take("results", list))]
        entry = cls(fields.take("function", str), fields.take("module", str), tuple(args), tuple(results))
        fields.done()
        names = [arg.name for arg in args]
        if len(set(names)) != len(names):
            raise ArtifactError(f"manifest: {where}.args must have different names, got {names}")
        return entry


@dataclass(frozen=True)
class ModuleFile:
    """One compiled module of a target.

    Attributes:
        path: Its place relative to the artifact's folder, with forward slashes.
        sha256: Digest of the file as 64 hexadecimal digits.
        size_bytes: Size of the file.
    """

    path: str
    sha256: str
    size_bytes: int

    def to_json(self) -> dict[str, Any]:
        """The module as plain JSON values."""
        return {"path": self.path, "sha256": self.sha256, "size_bytes": self.size_bytes}

    @classmethod
    def from_json(cls, value: object, where: str) -> "ModuleFile":
        """Read a module; a path that leaves the artifact is refused."""
        fields = Fields(value, where)
        module = cls(fields.take("path", str), fields.take("sha256", str), fields.natural("size_bytes"))
        fields.done()
        path = PurePosixPath(module.path)
        if path.is_absolute() or ".." in path.parts or not path.parts or "\\" in module.path:
            raise ArtifactError(f"manifest: {where}.path must stay inside the artifact, got {module.path!r}")
        if not _SHA256.match(module.sha256):
            raise ArtifactError(f"manifest: {where}.sha256 must be 64 hexadecimal digits, got {module.sha256!r:.80}")
        return module


@dataclass(frozen=True)
class Target:
    """The modules for one kind of device, and what that device must offer.

    Attributes:
        driver: The device driver, such as "local-task".
        arch: The processor or GPU the code was generated for, by the compiler's name.
        features: CPU features the code needs, by the compiler's names; () for a GPU.
        subgroup_sizes: Subgroup sizes with which the code is right; () is any.
        modules: Module name to file.
    """

    driver: str
    arch: str
    features: tuple[str, ...]
    subgroup_sizes: tuple[int, ...]
    modules: dict[str, ModuleFile]

    def to_json(self) -> dict[str, Any]:
        """The target as plain JSON values."""
        return {
            "driver": self.driver,
            "arch": self.arch,
            "features": list(self.features),
            "subgroup_sizes": list(self.subgroup_sizes),
            "modules": {name: module.to_json() for name, module in self.modules.items()},
        }

    @classmethod
    def from_json(cls, name: str, value: object) -> "Target":
        """Read a target; `name` names it in errors."""
        where = f"targets.{name}"
        fields = Fields(value, where)
        target = cls(
            fields.take("driver", str),
            fields.take("arch", str),
            fields.strings("features"),
            fields.naturals("subgroup_sizes"),
            fields.each("modules", lambda key, item: ModuleFile.from_json(item, f"{where}.modules.{key}")),
        )
        fields.done()
        return target


@dataclass(frozen=True)
class Manifest:
    """Everything an artifact says about itself.

    Attributes:
        trainc_version: The version that compiled it.
        kind: The model family, such as "samba"; it selects the driver that trains it.
        config: The model's configuration, as the family reads it.
        settings: What the run needs beside the model ("optimizer", "schedule", "batch", "decode").
        numeric_mode: "deterministic", "fast" or "identical".
        precision: "f32" or "bf16".
        state: Table name to table.
        entries: Entry name to entry.
        targets: Target name to target.
        compiler: Version of the compiler that made the modules, and its flags by target name.
        selftest: What `trainc verify` runs and compares; None for a kernel.
    """

    trainc_version: str
    kind: str
    config: dict[str, Any]
    settings: dict[str, Any]
    numeric_mode: str
    precision: str
    state: dict[str, StateTable]
    entries: dict[str, Entry]
    targets: dict[str, Target]
    compiler: dict[str, Any] = field(default_factory=dict)
    selftest: SelfTest | None = None

    def to_json(self) -> dict[str, Any]:
        """The manifest as plain JSON values."""
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "trainc_version": self.trainc_version,
            "kind": self.kind,
            "config": self.config,
            "settings": self.settings,
            "numeric_mode": self.numeric_mode,
            "precision": self.precision,
            "state": {name: table.to_json() for name, table in self.state.items()},
            "entries": {name: entry.to_json() for name, entry in self.entries.items()},
            "targets": {name: target.to_json() for name, target in self.targets.items()},
            "compiler": self.compiler,
            "selftest": None if self.selftest is None else self.selftest.to_json(),
        }

    def to_text(self) -> str:
        """The manifest as the indented JSON text of `manifest.json`."""
        return json.dumps(self.to_json(), indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, value: object) -> "Manifest":
        """Read a manifest from JSON values.

        Raises:
            ArtifactError: Another format or version, or a field that is missing, unknown or wrong.
        """
        fields = Fields(value, "")
        fields.choice("format", (FORMAT,))
        version = fields.take("format_version", int)
        if version != FORMAT_VERSION:
            raise ArtifactError(
                f"manifest: format_version must be {FORMAT_VERSION}, got {version}; "
                "compile the artifact again with this trainc"
            )
        manifest = cls(
            trainc_version=fields.take("trainc_version", str),
            kind=fields.take("kind", str),
            config=fields.take("config", dict),
            settings=fields.take("settings", dict),
            numeric_mode=fields.choice("numeric_mode", NUMERIC_MODES),
            precision=fields.choice("precision", ("f32", "bf16")),
            state=fields.each("state", StateTable.from_json),
            entries=fields.each("entries", Entry.from_json),
            targets=fields.each("targets", Target.from_json),
            compiler=fields.take("compiler", dict),
            selftest=_selftest(fields.take("selftest", (dict, type(None)))),
        )
        fields.done()
        manifest._check_references()
        return manifest

    @classmethod
    def from_text(cls, text: str) -> "Manifest":
        """Read the text of `manifest.json`.

        Raises:
            ArtifactError: Not JSON, or not a manifest.
        """
        try:
            value = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise ArtifactError(f"manifest: not JSON ({error}); the artifact is damaged or foreign") from error
        return cls.from_json(value)

    def _check_references(self) -> None:
        for name, entry in self.entries.items():
            for arg in entry.args:
                where = f"entries.{name}.args.{arg.name}"
                if arg.state is None:
                    continue
                if arg.state not in self.state:
                    raise ArtifactError(
                        f"manifest: {where}.state must be one of {sorted(self.state)}, got {arg.state!r}"
                    )
                size = self.state[arg.state].size
                if arg.shape != (size,):
                    raise ArtifactError(f"manifest: {where}.shape must be [{size}], got {list(arg.shape)}")
            for target_name, target in self.targets.items():
                if entry.module not in target.modules:
                    raise ArtifactError(
                        f"manifest: entries.{name}.module must be one of the modules of target {target_name!r} "
                        f"({sorted(target.modules)}), got {entry.module!r}"
                    )
