"""Initial weights of a Samba model (spec section 4.1)."""

import numpy as np

from trainc.core.float32 import FloatArray
from trainc.frontends.generator import Generator
from trainc.frontends.samba.config import SambaConfig

_EMBEDDING_STD = 0.02
_DT_BIAS_RANGE = (-4.0, -2.0)
_EMBEDDINGS = ("embed.weight", "lm_head.weight")


def initial_weights(config: SambaConfig, generator: Generator) -> dict[str, FloatArray]:
    """Draws the initial weights of a model, in registry order.

    Embeddings are normal with standard deviation 0.02, matrices uniform in plus or minus 1 / sqrt(inputs),
    dt_bias uniform in [-4, -2); norms and everything else are ones, which take nothing from the generator.

    Args:
        config: The model.
        generator: Source of the draws; it moves on by one stream for every drawn tensor.

    Returns:
        float32 arrays by registry name.

    Raises:
        StreamsExhaustedError: The generator has too few streams left.
    """
    return {name: _draw(name, shape, generator) for name, shape in config.registry()}


def _draw(name: str, shape: tuple[int, ...], generator: Generator) -> FloatArray:
    if name in _EMBEDDINGS:
        return generator.normal(shape, 0.0, _EMBEDDING_STD)
    last = name.rpartition(".")[2]
    if last == "weight" and len(shape) == 2:
        return generator.kaiming_uniform(shape, fan_in=shape[1])
    if last == "dt_bias":
        return generator.uniform(shape, *_DT_BIAS_RANGE)
    return np.ones(shape, np.float32)
