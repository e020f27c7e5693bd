"""The training interface: optimizers, schedules, losses, layer functions, random draws, models and their trainers.

Everything works on float32 arrays that the caller holds: NumPy arrays, `array.array`, `memoryview` and other objects
with the buffer protocol, or DLPack tensors on the CPU; results are NumPy arrays. It is no autograd framework: gradients
are computed and passed by the caller, except by the models, which train themselves.

A name is loaded when it is first used. Nothing compiled is loaded, and nothing is compiled, before a function, a step
or a model needs it. The main names are also those of `trainc` itself.
"""

import importlib
from typing import TYPE_CHECKING, Any

_BLOCKS = "trainc.frontends.blocks"
_FUNCTIONS = "trainc.frontends.functional"
_OPTIMIZERS = "trainc.frontends.optimizers"
_SCHEDULES = "trainc.core.schedules"

_HOMES = {
    "Adam": f"{_OPTIMIZERS}.adam",
    "AdamW": f"{_OPTIMIZERS}.adam",
    "ConstantLR": _SCHEDULES,
    "Generator": "trainc.frontends.generator",
    "LanguageModelConfig": "trainc.frontends.byte_lm.config",
    "LanguageModelTrainer": "trainc.frontends.byte_lm.trainer",
    "Mamba3Block": f"{_BLOCKS}.mamba3",
    "Mamba3State": f"{_BLOCKS}.states",
    "SGD": f"{_OPTIMIZERS}.sgd",
    "SambaConfig": "trainc.frontends.samba.config",
    "SambaStack": "trainc.frontends.samba.stack",
    "SambaState": "trainc.frontends.samba.state",
    "SmallByteLanguageModelTrainer": "trainc.frontends.byte_lm.trainer",
    "SmallMLPTrainer": "trainc.frontends.small_mlp",
    "TransformerBlock": f"{_BLOCKS}.transformer",
    "TransformerState": f"{_BLOCKS}.states",
    "WarmupCosineLR": _SCHEDULES,
    "WarmupLinearLR": _SCHEDULES,
    "accumulate_grads": f"{_OPTIMIZERS}.gradients",
    "accumulation_is_aligned": f"{_OPTIMIZERS}.gradients",
    "chunked_lm_head_loss": f"{_FUNCTIONS}.lm_head",
    "clip_grad_norm_": f"{_OPTIMIZERS}.gradients",
    "cross_entropy": f"{_FUNCTIONS}.cross_entropy",
    "embedding_backward": f"{_FUNCTIONS}.embedding",
    "embedding_forward": f"{_FUNCTIONS}.embedding",
    "linear_backward": f"{_FUNCTIONS}.linear",
    "linear_forward": f"{_FUNCTIONS}.linear",
    "mlp_inference_sessions": f"{_FUNCTIONS}.mlp",
    "numeric_mode_used": f"{_FUNCTIONS}.modes_used",
    "residual_dropout": f"{_FUNCTIONS}.residual_dropout",
    "residual_dropout_backward": f"{_FUNCTIONS}.residual_dropout",
    "rms_norm_backward": f"{_FUNCTIONS}.rms_norm",
    "rms_norm_forward": f"{_FUNCTIONS}.rms_norm",
    "schedule_from_config": _SCHEDULES,
    "vendor_used": f"{_FUNCTIONS}.modes_used",
}

if TYPE_CHECKING:
    from trainc.core.schedules import ConstantLR, WarmupCosineLR, WarmupLinearLR, schedule_from_config
    from trainc.frontends.blocks.mamba3 import Mamba3Block
    from trainc.frontends.blocks.states import Mamba3State, TransformerState
    from trainc.frontends.blocks.transformer import TransformerBlock
    from trainc.frontends.byte_lm.config import LanguageModelConfig
    from trainc.frontends.byte_lm.trainer import LanguageModelTrainer, SmallByteLanguageModelTrainer
    from trainc.frontends.functional.cross_entropy import cross_entropy
    from trainc.frontends.functional.embedding import embedding_backward, embedding_forward
    from trainc.frontends.functional.linear import linear_backward, linear_forward
    from trainc.frontends.functional.lm_head import chunked_lm_head_loss
    from trainc.frontends.functional.mlp import mlp_inference_sessions
    from trainc.frontends.functional.modes_used import numeric_mode_used, vendor_used
    from trainc.frontends.functional.residual_dropout import residual_dropout, residual_dropout_backward
    from trainc.frontends.functional.rms_norm import rms_norm_backward, rms_norm_forward
    from trainc.frontends.generator import Generator
    from trainc.frontends.optimizers.adam import Adam, AdamW
    from trainc.frontends.optimizers.gradients import accumulate_grads, accumulation_is_aligned, clip_grad_norm_
    from trainc.frontends.optimizers.sgd import SGD
    from trainc.frontends.samba.config import SambaConfig
    from trainc.frontends.samba.stack import SambaStack
    from trainc.frontends.samba.state import SambaState
    from trainc.frontends.small_mlp import SmallMLPTrainer

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "ConstantLR",
    "Generator",
    "LanguageModelConfig",
    "LanguageModelTrainer",
    "Mamba3Block",
    "Mamba3State",
    "SambaConfig",
    "SambaStack",
    "SambaState",
    "SmallByteLanguageModelTrainer",
    "SmallMLPTrainer",
    "TransformerBlock",
    "TransformerState",
    "WarmupCosineLR",
    "WarmupLinearLR",
    "accumulate_grads",
    "accumulation_is_aligned",
    "chunked_lm_head_loss",
    "clip_grad_norm_",
    "cross_entropy",
    "embedding_backward",
    "embedding_forward",
    "linear_backward",
    "linear_forward",
    "mlp_inference_sessions",
    "numeric_mode_used",
    "residual_dropout",
    "residual_dropout_backward",
    "rms_norm_backward",
    "rms_norm_forward",
    "schedule_from_config",
    "vendor_used",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'trainc.training' has no attribute {name!r}; it offers {', '.join(__all__)}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
