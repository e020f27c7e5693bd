"""The block of the golden values, as tests/golden/samba.json describes it, and its gradients in float64."""

from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.frontends.blocks.block import Block
from trainc.frontends.blocks.kernels import BACKWARD, BlockKernel
from trainc.frontends.blocks.mamba3 import Mamba3Block
from trainc.frontends.blocks.tracing.graph import block_source
from trainc.frontends.samba.config import SambaConfig
from trainc.ir.interpret import interpret

Arrays = dict[str, npt.NDArray[Any]]

ROWS, LENGTH, WIDTH = 2, 67, 32


def golden_block() -> tuple[Mamba3Block, npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return the block, its input and the gradient of its output."""
    rng = np.random.default_rng(11)
    shapes = SambaConfig(2, WIDTH, ("mamba3",)).block_shapes("mamba3")
    weights = {name: (rng.standard_normal(shape) * 0.3).astype(np.float32) for name, shape in shapes}
    x, dy = (rng.standard_normal((ROWS, LENGTH, WIDTH)).astype(np.float32) for _ in range(2))
    return Mamba3Block(WIDTH, weights), x, dy


def exact_gradients(block: Block[Any], x: npt.NDArray[Any], dy: npt.NDArray[Any]) -> Arrays:
    """Return the gradients of the traced program in float64, in the order of `Block.backward`."""
    kernel = BlockKernel(block._config, block.numeric_mode, BACKWARD, *x.shape[:2])
    program = block_source(kernel).programs[BACKWARD]
    found = interpret(program, BACKWARD, [*block.parameters().values(), x, dy])
    return dict(zip(("x", *block.names), found, strict=True))


def assert_close(found: Arrays, exact: Arrays, tolerance: float) -> None:
    """Assert that every tensor's error, as a norm, is at most `tolerance` of its exact norm."""
    assert list(found) == list(exact)
    for name, value in exact.items():
        error = np.linalg.norm(found[name] - value) / np.linalg.norm(value)
        assert error < tolerance, f"{name}: {error}"
