"""trainc.training has every name of the interface it follows, with its signature; docs/training_api.md lists them."""

import inspect
import re
from pathlib import Path

import pytest

from trainc import training

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs/training_api.md").read_text("utf-8")
ROWS = {
    name: (home, test, deviation)
    for name, home, test, deviation in re.findall(
        r"^\| `([\w.]+)` \| `(.*?)` \| `(.*?)` \| (.*?) ?\|$", PAGE, re.MULTILINE
    )
}

MODE = "numeric_mode=None"
_COMMON = "lr_schedule=None, accumulation_steps=1, maximize=False, resident=None, **kwargs"
_ADAM = "betas=(0.9, 0.999), eps=1e-08"
_SCHEDULE = "peak_lr, warmup_steps=0, total_steps=None, min_lr=0.0"
_MASK = "*, p=0.5, seed=0, stream=0, offset=0"
SIGNATURES = {
    "clip_grad_norm_": f"grads, max_norm, norm_type=2.0, error_if_nonfinite=True, {MODE}, **kwargs",
    "cross_entropy": "logits, targets, ignore_index=-100, reduction='mean', label_smoothing=0.0, num_items=None, "
    f"return_grad=False, {MODE}, **kwargs",
    "numeric_mode_used": MODE,
    "vendor_used": MODE,
    "accumulate_grads": f"microbatch_grads, tokens, {MODE}",
    "accumulation_is_aligned": f"tokens, accumulation_steps, {MODE}",
    "embedding_forward": f"weight, ids, {MODE}",
    "embedding_backward": f"dy, ids, vocab, {MODE}",
    "rms_norm_forward": f"x, weight, eps, {MODE}",
    "rms_norm_backward": f"dy, x, weight, eps, {MODE}",
    "linear_forward": f"a, weight, {MODE}",
    "linear_backward": f"dc, a, weight, {MODE}",
    "chunked_lm_head_loss": f"hidden, weight, targets, return_grad=False, {MODE}",
    "mlp_inference_sessions": f"inputs, weight1, bias1, weight2, bias2, {MODE}",  # its default is a deviation
    "residual_dropout": f"values, residual, {_MASK}",
    "residual_dropout_backward": f"gradient, {_MASK}",
    "SGD": f"params, lr=0.001, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, {_COMMON}",
    "Adam": f"params, lr=0.001, {_ADAM}, weight_decay=0.0, {_COMMON}",
    "AdamW": f"params, lr=0.001, {_ADAM}, weight_decay=0.01, {_COMMON}",
    **{
        f"{optimizer}.{method}": arguments
        for optimizer in ("SGD", "Adam", "AdamW")
        for method, arguments in {
            "step": "self, grads, max_norm=None",
            "step_accumulated": "self, microbatch_grads, tokens",
            "zero_grad": "self, grads",
            "state_dict": "self",
            "load_state_dict": "self, state",
        }.items()
    },
    **{
        f"{schedule}{method}": arguments
        for schedule in ("ConstantLR", "WarmupLinearLR", "WarmupCosineLR")
        for method, arguments in {
            "": _SCHEDULE,
            ".lr_at": "self, t",
            ".config": "self",
            ".from_config": "config",
        }.items()
    },
    "Generator": f"seed, {MODE}",
    "Generator.state_dict": "self",
    "Generator.load_state_dict": "self, state",
    "Generator.next_stream": "self",
    "Generator.uniform": "self, shape, low=0.0, high=1.0",
    "Generator.normal": "self, shape, mean=0.0, std=1.0",
    "Generator.kaiming_uniform": "self, shape, fan_in, a=None",
    "Generator.xavier_uniform": "self, shape, fan_in, fan_out, gain=1.0",
    "Generator.kaiming_normal": "self, shape, fan_in, gain=None",
    "Generator.xavier_normal": "self, shape, fan_in, fan_out, gain=1.0",
    "Generator.dropout": "self, x, p, offset=0, stream=None",
    "Generator.dropout_backward": "self, dy, key",
    "SambaConfig": "vocab, d_model, layers, n_heads=None, n_kv_heads=None, head_dim=None, intermediate=None, "
    "tie_embeddings=True, norm_eps=1e-05, dropout=0.0",
    "SambaConfig.to_dict": "self",
    "SambaConfig.from_dict": "d",
    "SambaConfig.block_shapes": "self, kind",
    "SambaConfig.registry": "self",
    "SambaStack": f"config, weights=None, generator=None, lr=0.001, {_ADAM}, weight_decay=0.01, lr_schedule=None, "
    f"max_norm=None, accumulation_steps=1, {MODE}",
    "SambaStack.load_weights": "self, weights",
    "SambaStack.parameters": "self",
    "SambaStack.forward": "self, inputs, state=None, *, lengths=None",
    "SambaStack.allocate_state": "self, batch_size, max_tokens",
    "SambaStack.step": "self, inputs, state",
    "SambaStack.loss": "self, inputs, targets",
    "SambaStack.loss_and_grads": "self, inputs, targets, num_items=None, dropout_stream=None, token_offset=0",
    "SambaStack.train_step": "self, inputs, targets",
    "SambaStack.state_dict": "self, *, _copy_arrays=True",
    "SambaStack.load_state_dict": "self, state",
    "SambaStack.save_checkpoint": "self, path",
    "SambaStack.from_checkpoint": f"path, {MODE}",
}
"""The functions, the classes and their methods, as a caller writes their arguments."""

ATTRIBUTES = {
    *(f"{optimizer}.{name}" for optimizer in ("SGD", "Adam", "AdamW") for name in ("lr", "lr_schedule")),
    *(f"{optimizer}.{name}" for optimizer in ("Adam", "AdamW") for name in ("t", "exp_avg", "exp_avg_sq")),
    *(f"SambaStack.{name}" for name in ("config", "names", "optimizer")),
}
NAMED_ONLY = {
    *("SambaState", "Mamba3Block", "Mamba3State", "TransformerBlock", "TransformerState"),
    *("SmallMLPTrainer", "LanguageModelConfig", "LanguageModelTrainer", "SmallByteLanguageModelTrainer"),
}
"""Names that the interface mentions and whose arguments it leaves open."""


def find(name):
    head, _, method = name.partition(".")
    return getattr(getattr(training, head), method) if method else getattr(training, head)


@pytest.mark.parametrize("name", SIGNATURES)
def test_the_signature(name):
    signature = inspect.signature(find(name))
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    assert str(inspect.Signature(plain)) == f"({SIGNATURES[name]})"


def test_every_name_is_exported():
    heads = {name.partition(".")[0] for name in SIGNATURES}
    assert heads | NAMED_ONLY | {"schedule_from_config"} == set(training.__all__)


def test_the_page_lists_every_name():
    assert set(SIGNATURES) | ATTRIBUTES | NAMED_ONLY <= set(ROWS)
    assert {name.partition(".")[0] for name in ROWS} <= set(training.__all__)


@pytest.mark.parametrize("name", ROWS)
def test_the_page_says_where_a_name_lives_and_is_tested(name):
    home, test, deviation = ROWS[name]
    last = re.compile(rf"\b{re.escape(name.rpartition('.')[2])}\b")
    assert last.search((ROOT / home).read_text("utf-8")), f"{home} does not have {name}"
    assert last.search((ROOT / test).read_text("utf-8")), f"{test} does not use {name}"
    if name not in ATTRIBUTES:
        assert callable(find(name))
    if deviation:
        anchor = re.fullmatch(r"\[.*\]\(deviations\.md#([\w-]+)\)", deviation)[1]
        headings = re.findall(r"^## (.*)$", (ROOT / "docs/deviations.md").read_text("utf-8"), re.MULTILINE)
        assert anchor in [heading.lower().replace(" ", "-") for heading in headings]


def test_every_public_thing_is_documented():
    for name in training.__all__:
        thing = find(name)
        assert inspect.getdoc(thing), name
        if inspect.isclass(thing):
            for method, value in inspect.getmembers(thing):
                if not method.startswith("_") and (callable(value) or isinstance(value, property)):
                    assert inspect.getdoc(value), f"{name}.{method}"
