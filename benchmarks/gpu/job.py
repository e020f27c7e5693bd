"""What the parts of the check are given: batches, weights, and the torch model that does the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core.errors import ArtifactError
from trainc.core.manifest import Manifest
from trainc.frontends.drivers import driver_for
from trainc.runtime.driver import Driver

SEED = 0
BATCHES = 16
"""Batches that training goes through again and again."""

TORCH_DEVICES = {"cpu": "cpu", "cuda": "cuda", "rocm": "cuda", "vulkan": "cuda", "metal": "mps"}
"""torch's name of a family of devices."""

_WORDS, _LONGEST = 64, 9


@dataclass(frozen=True)
class Job:
    """The inputs of every part, in files.

    Attributes:
        manifest: The artifact's manifest.
        tokens: Tokens of a step.
        curve: What the contender that trains is given, without the device.
        timing: What it is given where steps are timed: one batch, the same as torch's.
        torch: What torch's contender is given, without device and form.
        torch_problem: Why torch's model does not compute the same; "" if it does.
    """

    manifest: Manifest
    tokens: int
    curve: Mapping[str, Any]
    timing: Mapping[str, Any]
    torch: Mapping[str, Any]
    torch_problem: str

    @classmethod
    def write(cls, artifact: Path, manifest: Manifest, folder: Path, threads: int) -> Job:
        """Write the files.

        Args:
            artifact: The artifact.
            manifest: Its manifest.
            folder: Where they go.
            threads: Threads of torch on a CPU.
        """
        driver = driver_for(manifest)
        windows = batches(driver)
        all_batches, one_batch = folder / "batches.npy", folder / "batch.npy"
        torch_batch, weights = folder / "torch-batch.npy", folder / "weights.npz"
        np.save(all_batches, windows)
        np.save(one_batch, windows[:1])
        np.save(torch_batch, windows[0].astype(np.int32))
        np.savez(weights, **driver.initial_parameters(SEED)[0])
        common = {"artifact": str(artifact.resolve()), "seed": SEED}
        return cls(
            manifest,
            driver.rows * driver.length,
            {**common, "windows": str(all_batches)},
            {**common, "windows": str(one_batch)},
            {
                "config": dict(manifest.config),
                "optimizer": manifest.settings["optimizer"],
                "weights": str(weights),
                "windows": str(torch_batch),
                "threads": threads,
            },
            _torch_problem(manifest),
        )

    def narrow(self, artifact: Path, manifest: Manifest) -> Job:
        """Return the job with the same model compiled in bf16 in the place of the artifact.

        Args:
            artifact: The artifact in bf16.
            manifest: Its manifest.

        Raises:
            ArtifactError: It is in another precision, or of another model, batch or optimizer.
        """
        if manifest.precision != "bf16":
            raise ArtifactError(f"{artifact} should be compiled with --precision bf16, but is in {manifest.precision}")
        if identity(manifest) != identity(self.manifest):
            raise ArtifactError(f"{artifact} is of another model, batch or optimizer than the artifact beside it")
        path = {"artifact": str(artifact.resolve())}
        return dataclasses.replace(
            self, manifest=manifest, curve={**self.curve, **path}, timing={**self.timing, **path}
        )


def identity(manifest: Manifest) -> dict[str, Any]:
    """What two artifacts must have in common for their losses to be the same: all but the compiled code."""
    return {"config": dict(manifest.config), "settings": dict(manifest.settings), "seed": SEED, "batches": BATCHES}


def batches(driver: Driver) -> npt.NDArray[np.uint8]:
    """Windows of made-up text that a model can learn, uint8 [batches, rows, length + 1]; the same everywhere."""
    rng = np.random.default_rng(SEED)
    letters = min(driver.vocab, 26)
    words = [rng.integers(0, letters, rng.integers(2, _LONGEST)) for _ in range(_WORDS)]
    shape = (BATCHES, driver.rows, driver.length + 1)
    needed = int(np.prod(shape))
    text = np.concatenate([words[index] for index in rng.integers(0, _WORDS, needed)])  # words have 2 letters or more
    first = ord("a") if driver.vocab > ord("z") else 0
    return (text[:needed] + first).astype(np.uint8).reshape(shape)


def _torch_problem(manifest: Manifest) -> str:
    if manifest.config.get("dropout"):
        return "the model has dropout, which torch draws differently"
    if manifest.settings.get("schedule") is not None:
        return "the artifact has a schedule of learning rates, torch's model has a constant one"
    return ""
