"""The layer ops, one a file; importing this package registers all of them."""

from trainc.ir.ops import (
    adamw,
    add,
    attention,
    block_norms,
    cached_attention,
    cross_entropy,
    dropout,
    embedding,
    linear,
    mamba3,
    rms_norm,
    rope,
    swiglu,
    take_last,
)

__all__ = [
    "adamw",
    "add",
    "attention",
    "block_norms",
    "cached_attention",
    "cross_entropy",
    "dropout",
    "embedding",
    "linear",
    "mamba3",
    "rms_norm",
    "rope",
    "swiglu",
    "take_last",
]
