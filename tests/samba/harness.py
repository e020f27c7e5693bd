"""Compiled Samba models for tests: only the modules a test needs, and a device to call them on."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.frontends.generator import Generator
from trainc.frontends.samba.config_file import SambaRunConfig, config_from_document
from trainc.frontends.samba.driver import SambaDriver
from trainc.frontends.samba.init import initial_weights
from trainc.frontends.samba.tracing import entries
from trainc.frontends.samba.tracing.build import samba_source
from trainc.frontends.tracing.artifact import compile_artifact
from trainc.ir.interpret import interpret
from trainc.runtime.artifact import Artifact
from trainc.runtime.buffers import FlatBuffer
from trainc.runtime.device import open_device
from trainc.runtime.losses import total_loss
from trainc.runtime.program import Program

Arrays = dict[str, npt.NDArray[Any]]


def run_config(model: Mapping[str, Any], rows: int, length: int, **tables: Mapping[str, Any]) -> SambaRunConfig:
    """Return a run configuration, from the same checks as a TOML file."""
    batch = {"rows": rows, "length": length} | dict(tables.pop("batch", {}))
    return config_from_document({"model": dict(model), "batch": batch, **{k: dict(v) for k, v in tables.items()}})


@dataclass
class Compiled:
    """A compiled model on a device, with weights drawn from a seed."""

    run: SambaRunConfig
    path: Path
    program: Program
    weights: Arrays
    params: FlatBuffer

    @property
    def driver(self) -> SambaDriver:
        """The driver that trains it; needs the train module."""
        return SambaDriver(self.program.manifest)

    def call(self, entry: str, **arguments: Any) -> Arrays:
        """Call an entry on the weights."""
        return self.program.call(entry, {"params": self.params, **arguments})

    def gradients(
        self, ids: npt.NDArray[Any], targets: npt.NDArray[Any], divisor: float, **more: Any
    ) -> tuple[float, Arrays]:
        """Return the loss and every gradient; the buffer is full of NaN before the call."""
        grads = self.program.new_state("params", "grads")
        grads.flat.fill(np.nan)
        results = self.call("gradients", grads=grads, ids=ids, targets=targets, divisor=divisor, **more)
        assert not np.isnan(grads.flat).any(), "the entry must write its whole buffer"
        return total_loss(results["loss"]), {name: view.copy() for name, view in grads.views().items()}


def build(
    run: SambaRunConfig,
    folder: Path,
    modules: tuple[str, ...] = tuple(entries.MODULES),
    seed: int = 7,
    target: str = "cpu",
    device: str = "cpu",
) -> Compiled:
    """Compile some modules of a model for a target and load them on a device."""
    path = folder / "model.trainc"
    compile_artifact(samba_source(run, modules), path, targets=(target,))
    return load(run, path, seed, device)


def load(run: SambaRunConfig, path: Path, seed: int = 7, device: str = "cpu") -> Compiled:
    """Load a compiled model with fresh weights."""
    artifact = Artifact.open(path)
    program = Program(artifact, open_device(device))
    weights = initial_weights(run.model, Generator(seed))
    params = program.new_state("params")
    params.write(weights)
    return Compiled(run, path, program, dict(weights), params)


def random_batch(
    run: SambaRunConfig, seed: int = 0, ignored: float = 0.0
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Draw ids and targets of a step's shape, some targets ignored."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, run.model.vocab, (run.batch.rows, run.batch.length + 1)).astype(np.int32)
    targets = ids[:, 1:].copy()
    targets[rng.random(targets.shape) < ignored] = -100
    return np.ascontiguousarray(ids[:, :-1]), targets


def exact_gradients(
    run: SambaRunConfig,
    weights: Arrays,
    ids: npt.NDArray[Any],
    targets: npt.NDArray[Any],
    divisor: float,
    *more: npt.NDArray[Any],
) -> tuple[float, Arrays]:
    """Return the loss and gradients of the traced program in float64."""
    program = entries.trace_train(run)
    inputs = [*weights.values(), ids, targets, np.float64(divisor), *more]
    loss, *gradients = interpret(program, "gradients", inputs)
    return total_loss(loss), dict(zip(weights, gradients, strict=True))


def relative_errors(found: Arrays, exact: Arrays) -> dict[str, float]:
    """Return, for each tensor, the norm of the difference over the norm of the exact value.

    A gradient that is zero in exact arithmetic (attention scores of a single token) is measured against a thousandth of
    the whole gradient's norm instead.
    """
    norms = {name: float(np.linalg.norm(value)) for name, value in exact.items()}
    least = 1e-3 * float(np.linalg.norm(list(norms.values())))
    return {name: float(np.linalg.norm(found[name] - exact[name])) / max(norms[name], least) for name in exact}
