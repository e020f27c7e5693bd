"""Arguments of the wrong kind: every public function answers with an error of the package that names the argument."""

import numpy as np
import pytest

from trainc.core.errors import ConfigError, TraincError
from trainc.frontends.small_mlp import SHAPES
from trainc.training import (
    ConstantLR,
    LanguageModelTrainer,
    Mamba3State,
    SambaConfig,
    SambaStack,
    SambaState,
    SmallMLPTrainer,
    TransformerState,
    WarmupCosineLR,
    accumulation_is_aligned,
    clip_grad_norm_,
    cross_entropy,
    embedding_backward,
    numeric_mode_used,
    schedule_from_config,
)

CONFIG = SambaConfig(vocab=16, d_model=32, layers=("mamba3",))
ONES = np.ones((2, 3), np.float32)
IDS = np.array([0, 1])
MANY = np.zeros(2)

CALLS = {
    "SambaStack.from_checkpoint path": SambaStack.from_checkpoint,
    "SmallMLPTrainer.from_checkpoint path": SmallMLPTrainer.from_checkpoint,
    "LanguageModelTrainer.from_checkpoint path": LanguageModelTrainer.from_checkpoint,
    "SambaConfig.from_dict d": SambaConfig.from_dict,
    "schedule_from_config config": schedule_from_config,
    "WarmupCosineLR.from_config config": WarmupCosineLR.from_config,
    "SambaState config": lambda value: SambaState(value, 1, 4),
    "SambaState batch_size": lambda value: SambaState(CONFIG, value, 4),
    "SambaState max_tokens": lambda value: SambaState(CONFIG, 1, value),
    "cross_entropy reduction": lambda value: cross_entropy(ONES, IDS, reduction=value),
    "clip_grad_norm_ norm_type": lambda value: clip_grad_norm_(ONES.copy(), 1.0, norm_type=value),
    "embedding_backward vocab": lambda value: embedding_backward(ONES, IDS, value),
}


@pytest.mark.parametrize(
    "value", [None, 1.5, object(), b"x", MANY, np.ma.masked], ids=lambda value: type(value).__name__
)
@pytest.mark.parametrize("call", CALLS)
def test_the_error_is_one_of_the_package_and_names_the_argument(call: str, value: object) -> None:
    with pytest.raises(TraincError, match=call.split()[-1]):
        CALLS[call](value)


def test_a_mode_that_is_no_name() -> None:
    with pytest.raises(TraincError, match="numeric_mode must be one of"):
        numeric_mode_used(MANY)  # type: ignore[arg-type]
    with pytest.raises(TraincError, match="numeric_mode must be one of"):
        accumulation_is_aligned(8, 2, MANY)  # type: ignore[arg-type]


def test_a_kind_that_is_no_name() -> None:
    with pytest.raises(TraincError, match="kind must be one of"):
        schedule_from_config({**ConstantLR(0.1).config(), "kind": MANY})


def test_a_path_to_write_to() -> None:
    weights = {name: np.ones(shape, np.float32) for name, shape in SHAPES}
    with pytest.raises(TraincError, match="path must be a str"):
        SmallMLPTrainer(weights).save_checkpoint(None)  # type: ignore[arg-type]


def test_more_rows_than_ids_can_name() -> None:
    with pytest.raises(TraincError, match="vocab must be at most 2147483648"):
        embedding_backward(ONES, IDS, 2**64)


@pytest.mark.parametrize("layers", ["mamba3", "attention"])
@pytest.mark.parametrize("rows", [2**60, 2**64, 10**400], ids=["2**60", "2**64", "10**400"])
def test_states_larger_than_memory_can_be(layers: str, rows: int) -> None:
    config = SambaConfig(vocab=16, d_model=32, n_heads=2, intermediate=64, layers=(layers,))
    block = Mamba3State if layers == "mamba3" else TransformerState
    others = (32,) if layers == "mamba3" else (2, 16, 4)
    for make in (lambda: SambaState(config, rows, 4), lambda: block(rows, *others)):
        with pytest.raises(ConfigError, match="batch_size"):
            make()
