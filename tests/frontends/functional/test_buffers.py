"""Every array argument of every function: memory it takes as it is, and memory it refuses by name."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from trainc.core.errors import TraincError
from trainc.frontends.functional.cross_entropy import cross_entropy
from trainc.frontends.functional.embedding import embedding_backward, embedding_forward
from trainc.frontends.functional.linear import linear_backward, linear_forward
from trainc.frontends.functional.lm_head import chunked_lm_head_loss
from trainc.frontends.functional.mlp import mlp_inference_sessions
from trainc.frontends.functional.residual_dropout import residual_dropout, residual_dropout_backward
from trainc.frontends.functional.rms_norm import rms_norm_backward, rms_norm_forward

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


IDS = np.array([1, 3, 1, 0])
FUNCTIONS: dict[str, tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]] = {
    "cross_entropy": (cross_entropy, {"logits": floats(4, 7), "targets": IDS}, {"return_grad": True}),
    "embedding_forward": (embedding_forward, {"weight": floats(5, 6), "ids": IDS}, {}),
    "embedding_backward": (embedding_backward, {"dy": floats(4, 6), "ids": IDS}, {"vocab": 5}),
    "rms_norm_forward": (rms_norm_forward, {"x": floats(4, 6), "weight": floats(6)}, {"eps": 1e-5}),
    "rms_norm_backward": (
        rms_norm_backward,
        {"dy": floats(4, 6), "x": floats(4, 6), "weight": floats(6)},
        {"eps": 1e-5},
    ),
    "linear_forward": (linear_forward, {"a": floats(4, 6), "weight": floats(3, 6)}, {}),
    "linear_backward": (linear_backward, {"dc": floats(4, 3), "a": floats(4, 6), "weight": floats(3, 6)}, {}),
    "chunked_lm_head_loss": (
        chunked_lm_head_loss,
        {"hidden": floats(4, 8), "weight": floats(5, 8), "targets": IDS},
        {"return_grad": True},
    ),
    "mlp_inference_sessions": (
        lambda session, **rest: mlp_inference_sessions([session], **rest),
        {
            "session": floats(2, 4),
            "weight1": floats(5, 4),
            "bias1": floats(5),
            "weight2": floats(3, 5),
            "bias2": floats(3),
        },
        {},
    ),
    "residual_dropout": (residual_dropout, {"values": floats(4, 6), "residual": floats(4, 6)}, {}),
    "residual_dropout_backward": (residual_dropout_backward, {"gradient": floats(4, 6)}, {}),
}
ARGUMENTS = [(function, name) for function, (_, arrays, _) in FUNCTIONS.items() for name in arrays]
IS_FLOAT = {(function, name): FUNCTIONS[function][1][name].dtype == np.float32 for function, name in ARGUMENTS}


def with_argument(function: str, name: str, value: Any) -> Any:
    call, arrays, options = FUNCTIONS[function]
    return call(**{**arrays, name: value}, **options)


def bits(value: Any) -> list[bytes]:
    return [np.asarray(part).tobytes() for part in (value if isinstance(value, tuple) else (value,))]


def at_offset(array: np.ndarray, offset: int) -> np.ndarray:
    """A copy that starts `offset` bytes after a boundary of 64."""
    raw = np.zeros(array.nbytes + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@pytest.mark.parametrize(("function", "name"), ARGUMENTS)
def test_memory_that_is_taken_as_it_is(function, name):
    array = FUNCTIONS[function][1][name]
    plain = bits(with_argument(function, name, array))
    read_only = array.copy()
    read_only.flags.writeable = False
    others = [
        read_only,
        memoryview(array),
        *(at_offset(array, offset) for offset in (0, 4, 16, 60) if offset % array.itemsize == 0),
    ]
    for other in others:
        assert bits(with_argument(function, name, other)) == plain
    assert read_only.tobytes() == array.tobytes()


WRONG = {
    "float64": lambda a: a.astype(np.float64),
    "float16": lambda a: a.astype(np.float16),
    "complex": lambda a: a.astype(np.complex64),
    "bool": lambda a: a.astype(bool),
    "empty": lambda a: a[:0],
    "no columns": lambda a: a[..., :0],
    "a scalar": lambda a: a.reshape(-1)[0].reshape(()),
    "one dimension more": lambda a: a[..., None],
    "longer": lambda a: np.concatenate([a, a]),
    "a list": lambda a: a.tolist(),
    "None": lambda a: None,
    "text": lambda a: "array",
}
# What these make is another valid call: more rows of a table or a model, one more leading dimension of rows.
VALID = {
    ("embedding_forward", "weight", "longer"),
    ("embedding_forward", "ids", "longer"),
    ("linear_forward", "a", "longer"),
    ("linear_forward", "weight", "longer"),
    ("rms_norm_forward", "x", "longer"),
    ("chunked_lm_head_loss", "weight", "longer"),
    ("mlp_inference_sessions", "session", "longer"),
    ("mlp_inference_sessions", "session", "empty"),
    ("residual_dropout_backward", "gradient", "longer"),
    ("residual_dropout_backward", "gradient", "a scalar"),
    ("residual_dropout_backward", "gradient", "one dimension more"),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(("function", "name"), ARGUMENTS)
def test_what_does_not_fit_is_refused_by_name(function, name, wrong):
    if (function, name, wrong) in VALID:
        return
    arrays = FUNCTIONS[function][1]
    before = {key: value.tobytes() for key, value in arrays.items()}
    with pytest.raises(TraincError) as caught:
        with_argument(function, name, WRONG[wrong](arrays[name]))
    assert isinstance(caught.value, (TypeError, ValueError))
    shown = "inputs" if name == "session" else name
    # Where sizes disagree the message may be about the other array.
    assert shown in str(caught.value) or wrong in ("longer", "no columns", "one dimension more")
    if wrong in ("float64", "float16", "complex", "bool") and IS_FLOAT[function, name]:
        assert isinstance(caught.value, TypeError)
    assert {key: value.tobytes() for key, value in arrays.items()} == before


@pytest.mark.parametrize(("function", "name"), [pair for pair in ARGUMENTS if IS_FLOAT[pair]])
def test_float_memory_with_gaps_is_refused(function, name):
    array = FUNCTIONS[function][1][name]
    gaps = np.repeat(array, 2, axis=-1)[..., ::2]
    with pytest.raises(ValueError, match="C-contiguous"):
        with_argument(function, name, gaps)
