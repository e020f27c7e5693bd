"""A checkpoint: one safetensors file that holds a whole training state, each tensor with its SHA-256.

Tensors: the weights by their names, `optimizer.m.NAME` and `optimizer.v.NAME`. Metadata: `format`, `format_version`,
`state` (canonical JSON), `state_sha256`, and `tensors_sha256` (canonical JSON of name to digest). Equal states give
equal bytes.
"""

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from trainc.core.errors import CheckpointError
from trainc.core.files import atomic_write, canonical_json
from trainc.core.state_table import StateTable

FORMAT = "trainc-checkpoint"
FORMAT_VERSION = "1"
_METADATA = ("format", "format_version", "state", "state_sha256", "tensors_sha256")
_PREFIXES = {"parameters": "", "m": "optimizer.m.", "v": "optimizer.v."}
_HEADER_ALIGNMENT = 8

Arrays = Mapping[str, npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Checkpoint:
    """A training state that was read and verified.

    Attributes:
        parameters: Weights by name.
        m: First moments by the weights' names.
        v: Second moments by the weights' names.
        state: Everything else as plain JSON values.
        path: Where it was read.
    """

    parameters: dict[str, npt.NDArray[np.float32]]
    m: dict[str, npt.NDArray[np.float32]]
    v: dict[str, npt.NDArray[np.float32]]
    state: dict[str, Any]
    path: Path

    def require(self, expected: Mapping[str, Any]) -> None:
        """Refuse a checkpoint whose state differs from what is expected.

        Args:
            expected: Some fields of `state`; nested objects are compared field by field.

        Raises:
            CheckpointError: A field differs; the message names the first.
        """
        for name, value in expected.items():
            found = self.state.get(name)
            differing = _first_difference(name, json.loads(canonical_json(value)), found)
            if differing is not None:
                where, wanted, got = differing
                raise CheckpointError(
                    f"{self.path} does not fit: {where} must be {wanted!r:.200}, the checkpoint has {got!r:.200}; use "
                    "the artifact it was trained with"
                )

    def require_table(self, table: StateTable) -> None:
        """Refuse a checkpoint of another geometry.

        Raises:
            CheckpointError: A tensor is missing, unknown or of another shape; the message names the first.
        """
        wanted = {tensor.name: tensor.shape for tensor in table.tensors}
        for name in [*wanted, *(name for name in self.parameters if name not in wanted)]:
            array = self.parameters.get(name)
            found = None if array is None else array.shape
            if found != wanted.get(name):
                raise CheckpointError(
                    f"{self.path} is of another geometry: tensor {name!r} must be {wanted.get(name, 'absent')}, the "
                    f"checkpoint has {'none' if found is None else found}; use the artifact it was trained with"
                )


def write_checkpoint(path: Path | str, parameters: Arrays, m: Arrays, v: Arrays, state: Mapping[str, Any]) -> str:
    """Write a checkpoint, whole or not at all.

    Args:
        path: The file; an older one of that name is replaced, and kept if this fails.
        parameters: float32 weights by name.
        m: First moments by the same names.
        v: Second moments by the same names.
        state: Everything else as plain JSON values.

    Returns:
        SHA-256 of the file as 64 hexadecimal digits.

    Raises:
        CheckpointError: The file cannot be written, for example because the disk is full.
    """
    tensors: dict[str, npt.NDArray[np.float32]] = {}
    for prefix, arrays in zip(_PREFIXES.values(), (parameters, m, v), strict=True):
        tensors |= {prefix + name: np.asarray(array, "<f4", order="C") for name, array in arrays.items()}
    header = _header(tensors, canonical_json(state))
    digest = hashlib.sha256(header)

    def write(stream: BinaryIO) -> None:
        stream.write(header)
        for array in tensors.values():
            digest.update(_raw(array))
            stream.write(_raw(array))

    try:
        atomic_write(path, write)
    except OSError as error:
        raise CheckpointError(
            f"checkpoint {path} cannot be written: {error.strerror or error}; older checkpoints are intact"
        ) from error
    return digest.hexdigest()


def read_checkpoint(path: Path | str) -> Checkpoint:
    """Read a checkpoint and verify every byte of it.

    Raises:
        CheckpointError: No checkpoint there, or one that is truncated, damaged, foreign or of another format version.
    """
    file = Path(path)
    tensors, metadata = _read_file(file)
    if metadata.get("format") != FORMAT or any(key not in metadata for key in _METADATA):
        raise CheckpointError(f"{file} is a safetensors file, but no checkpoint of trainc")
    if metadata["format_version"] != FORMAT_VERSION:
        raise CheckpointError(
            f"{file} has format version {metadata['format_version']}, this trainc reads {FORMAT_VERSION}"
        )
    if _sha256(metadata["state"].encode()) != metadata["state_sha256"]:
        raise CheckpointError(f"{file} is damaged: the state does not match its SHA-256; use an older checkpoint")
    digests = _digests(file, metadata["tensors_sha256"])
    for name in sorted(set(digests) ^ set(tensors)):
        raise CheckpointError(f"{file} is damaged: tensor {name!r} is {'missing' if name in digests else 'unknown'}")
    for name, array in tensors.items():
        if array.dtype != np.float32:
            raise CheckpointError(f"{file} is damaged: tensor {name!r} must be float32, got {array.dtype}")
        if _sha256(_raw(array)) != digests[name]:
            raise CheckpointError(
                f"{file} is damaged: tensor {name!r} does not match its SHA-256; use an older checkpoint"
            )
    return _checkpoint(file, tensors, json.loads(metadata["state"]))


def _digests(file: Path, text: str) -> dict[str, Any]:
    """The digests by tensor name; nothing else vouches for this text."""
    try:
        digests = json.loads(text)
    except ValueError as error:
        raise CheckpointError(f"{file} is damaged: its list of SHA-256 cannot be read ({error})") from error
    if not isinstance(digests, dict):
        raise CheckpointError(f"{file} is damaged: its list of SHA-256 is {digests!r:.60}")
    return digests


def _checkpoint(file: Path, tensors: dict[str, npt.NDArray[Any]], state: dict[str, Any]) -> Checkpoint:
    names = [row["name"] for row in state.get("registry", [])]
    parts = {
        part: {name: tensors[prefix + name] for name in names if prefix + name in tensors}
        for part, prefix in _PREFIXES.items()
    }
    if sum(map(len, parts.values())) != len(tensors) or any(len(part) != len(names) for part in parts.values()):
        raise CheckpointError(f"{file} is damaged: its tensors are not those of its registry")
    return Checkpoint(parts["parameters"], parts["m"], parts["v"], state, file)


def _header(tensors: Mapping[str, npt.NDArray[np.float32]], state: str) -> bytes:
    digests = {name: _sha256(_raw(array)) for name, array in tensors.items()}
    metadata = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "state": state,
        "state_sha256": _sha256(state.encode()),
        "tensors_sha256": canonical_json(digests),
    }
    header: dict[str, Any] = {"__metadata__": metadata}
    offset = 0
    for name, array in tensors.items():
        header[name] = {
            "dtype": "F32",
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = canonical_json(header).encode()
    text += b" " * (-len(text) % _HEADER_ALIGNMENT)
    return struct.pack("<Q", len(text)) + text


def _read_file(file: Path) -> tuple[dict[str, npt.NDArray[Any]], dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    if not file.is_file():
        what = "is no file" if file.exists() else "does not exist"
        raise CheckpointError(f"checkpoint {file} {what}")
    try:
        with safe_open(file, framework="numpy") as stream:
            return {name: stream.get_tensor(name) for name in stream.keys()}, stream.metadata() or {}
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise CheckpointError(
            f"{file} is truncated, damaged or no checkpoint at all ({error}); use an older checkpoint"
        ) from error


def _first_difference(where: str, wanted: Any, found: Any) -> tuple[str, Any, Any] | None:
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key in sorted(wanted.keys() | found.keys()):
            deeper = _first_difference(f"{where}.{key}", wanted.get(key), found.get(key))
            if deeper is not None:
                return deeper
        return None
    return None if wanted == found else (where, wanted, found)


def _raw(array: npt.NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _sha256(data: bytes | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()
