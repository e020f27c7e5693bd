"""SambaStack's state: as a dict, as a file, and what is refused when it comes back."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import Cli
from tests.samba import tiny
from tests.samba.stacks import MAMBA, PLAIN, TINY, Halving, batch, snapshot, stack
from trainc.core.errors import CheckpointError, UnsupportedError
from trainc.core.files import sha256_file
from trainc.core.schedules import ConstantLR, WarmupCosineLR
from trainc.frontends.samba.stack import SambaStack
from trainc.runtime.checkpoint import read_checkpoint, write_checkpoint

IDS, TARGETS = batch()


def trained(**options: Any) -> SambaStack:
    """Return a stack after three steps, with settings unlike the defaults."""
    settings = {
        "lr": 0.02,
        "betas": (0.8, 0.95),
        "eps": 1e-6,
        "weight_decay": 0.1,
        "max_norm": 0.5,
        "accumulation_steps": 2,
        "lr_schedule": WarmupCosineLR(0.01, 2, 9, 0.001),
    }
    made = stack(**settings | options)
    for seed in range(3):
        made.train_step(*batch(seed=seed))
    return made


@pytest.fixture(scope="module")
def made() -> SambaStack:
    """A trained stack that no test changes."""
    return trained()


@pytest.fixture
def saved(made: SambaStack, tmp_path: Path) -> Path:
    made.save_checkpoint(tmp_path / "run.ckpt")
    return tmp_path / "run.ckpt"


def test_state_dict_is_copied_or_live(made: SambaStack) -> None:
    other = stack()
    copied, live = other.state_dict(), other.state_dict(_copy_arrays=False)
    other.parameters()["norm_f.weight"][0] = 9.0
    assert copied["parameters"]["norm_f.weight"][0] == 1.0
    assert live["parameters"]["norm_f.weight"][0] == 9.0
    state = made.state_dict()
    assert (state["step"], state["generator"]) == (3, {"seed": 7, "counter": 15})
    plain = {key: value for key, value in state.items() if key not in ("parameters", "exp_avg", "exp_avg_sq")}
    assert json.loads(json.dumps(plain)) == plain


def test_load_state_dict_resumes_exactly(made: SambaStack) -> None:
    other = stack(seed=1, accumulation_steps=2)
    assert other.load_state_dict(made.state_dict()) is other
    assert snapshot(other) == snapshot(made)
    again = stack(seed=2, accumulation_steps=2).load_state_dict(made.state_dict())
    assert [other.train_step(IDS, TARGETS) for _ in range(3)] == [again.train_step(IDS, TARGETS) for _ in range(3)]
    assert snapshot(other) == snapshot(again)


def test_load_state_dict_of_its_own_live_state() -> None:
    other = trained()
    before = snapshot(other)
    other.load_state_dict(other.state_dict(_copy_arrays=False))
    assert snapshot(other) == before


def _with(state: dict[str, Any], key: str, **values: Any) -> dict[str, Any]:
    return {**state, key: {**state[key], **values}}


@pytest.mark.parametrize(
    ("error", "change"),
    [
        (TypeError, lambda s: list(s)),
        (ValueError, lambda s: {}),
        (ValueError, lambda s: s | {"more": 1}),
        (ValueError, lambda s: {key: value for key, value in s.items() if key != "exp_avg"}),
        (ValueError, lambda s: s | {"schema": "another-1"}),
        (ValueError, lambda s: s | {"numeric_mode": "identical"}),
        (ValueError, lambda s: s | {"precision": "bf16"}),
        (ValueError, lambda s: _with(s, "config", vocab=62)),
        (ValueError, lambda s: _with(s, "batch", accumulation_steps=1)),
        (ValueError, lambda s: s | {"registry": s["registry"][1:]}),
        (ValueError, lambda s: s | {"step": -1}),
        (ValueError, lambda s: s | {"step": 1.5}),
        (ValueError, lambda s: s | {"generator": None}),
        (ValueError, lambda s: _with(s, "generator", counter=2**32)),
        (ValueError, lambda s: _with(s, "optimizer", lr=-1.0)),
        (ValueError, lambda s: _with(s, "optimizer", kind="sgd")),
        (ValueError, lambda s: _with(s, "optimizer", momentum=0.9)),
        (ValueError, lambda s: s | {"optimizer": {k: v for k, v in s["optimizer"].items() if k != "eps"}}),
        (ValueError, lambda s: s | {"optimizer": "adamw"}),
        (ValueError, lambda s: _with(s, "schedule", kind="square")),
        (ValueError, lambda s: s | {"schedule": {"kind": "external"}}),
        (ValueError, lambda s: s | {"schedule": "cosine"}),
        (TypeError, lambda s: s | {"parameters": None}),
        (ValueError, lambda s: _with(s, "exp_avg", more=np.zeros(3, np.float32))),
        (ValueError, lambda s: _with(s, "exp_avg_sq", **{"norm_f.weight": np.zeros(31, np.float32)})),
        (TypeError, lambda s: _with(s, "exp_avg", **{"norm_f.weight": np.zeros(32)})),
        (ValueError, lambda s: s | {"registry": np.zeros(2)}),
        (ValueError, lambda s: _with(s, "exp_avg_sq", **{"norm_f.weight": np.full(32, -1.0, np.float32)})),
        (ValueError, lambda s: _with(s, "parameters", **{"norm_f.weight": np.full(32, np.nan, np.float32)})),
    ],
)
def test_load_state_dict_refuses_and_changes_nothing(made: SambaStack, error: type[Exception], change: Any) -> None:
    other = stack(seed=1, accumulation_steps=2)
    before = snapshot(other)
    with pytest.raises(error):
        other.load_state_dict(change(made.state_dict()))
    assert snapshot(other) == before


def test_another_model_s_state_is_refused(made: SambaStack) -> None:
    for other in (stack(PLAIN, accumulation_steps=2), stack(MAMBA, accumulation_steps=2), stack()):
        with pytest.raises(ValueError):
            other.load_state_dict(made.state_dict())


def test_a_schedule_of_one_s_own_stays(tmp_path: Path) -> None:
    first = trained(lr_schedule=Halving())
    own = Halving()
    second = stack(seed=1, accumulation_steps=2, lr_schedule=own).load_state_dict(first.state_dict())
    assert second.optimizer.lr_schedule is own
    assert second.train_step(IDS, TARGETS)["lr"] == float(np.float32(0.01 / 2**4))
    first.save_checkpoint(tmp_path / "own.ckpt")
    with pytest.raises(ValueError, match="'external'"):
        SambaStack.from_checkpoint(tmp_path / "own.ckpt")


def test_a_state_brings_its_schedule(made: SambaStack) -> None:
    other = stack(seed=1, accumulation_steps=2, lr_schedule=ConstantLR(0.5)).load_state_dict(made.state_dict())
    assert other.optimizer.lr_schedule == WarmupCosineLR(0.01, 2, 9, 0.001)
    assert other.max_norm == 0.5


def test_a_checkpoint_comes_back_whole(made: SambaStack, saved: Path) -> None:
    back = SambaStack.from_checkpoint(str(saved))
    assert snapshot(back) == snapshot(made)
    assert back.save_checkpoint(saved.with_name("again.ckpt")) == sha256_file(saved)
    assert saved.read_bytes() == saved.with_name("again.ckpt").read_bytes()
    twin = SambaStack.from_checkpoint(saved)
    assert [back.train_step(IDS, TARGETS) for _ in range(2)] == [twin.train_step(IDS, TARGETS) for _ in range(2)]


def test_a_resumed_checkpoint_is_saved_over_itself(saved: Path) -> None:
    before = saved.read_bytes()
    back = SambaStack.from_checkpoint(saved)
    digest = back.save_checkpoint(saved)
    assert digest == sha256_file(saved)
    assert saved.read_bytes() == before
    back.train_step(IDS, TARGETS)
    assert back.save_checkpoint(saved) == sha256_file(saved) != digest
    assert SambaStack.from_checkpoint(saved).optimizer.t == 4
    assert os.listdir(saved.parent) == [saved.name]


def test_the_mode_can_be_chosen(saved: Path) -> None:
    assert SambaStack.from_checkpoint(saved, numeric_mode="fast").numeric_mode == "fast"
    with pytest.raises(UnsupportedError, match="identical"):
        SambaStack.from_checkpoint(saved, numeric_mode="identical")
    with pytest.raises(ValueError, match="bogus"):
        SambaStack.from_checkpoint(saved, numeric_mode="bogus")


def test_damage_is_found(saved: Path) -> None:
    whole = saved.read_bytes()
    damaged = [whole[:-1], whole + b"\0", b"", whole[: len(whole) // 2], b"text"]
    for at in (9, 200, len(whole) // 2, len(whole) - 1):
        damaged.append(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    for content in damaged:
        saved.write_bytes(content)
        with pytest.raises(CheckpointError):
            SambaStack.from_checkpoint(saved)
    saved.unlink()
    with pytest.raises(ValueError, match="does not exist"):
        SambaStack.from_checkpoint(saved)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s | {"kind": "encoder"},
        lambda s: s | {"precision": "bf16"},
        lambda s: _with(s, "config", vocab=62),
        lambda s: _with(s, "config", layers=["conv"]),
        lambda s: s | {"config": None},
        lambda s: _with(s, "batch", accumulation_steps="two"),
        lambda s: {key: value for key, value in s.items() if key != "optimizer"},
        lambda s: s | {"numeric_mode": "bogus"},
        lambda s: _with(s, "schedule", kind="square"),
        lambda s: _with(s, "generator", counter=-1),
    ],
)
def test_a_whole_file_of_another_kind_is_refused(saved: Path, change: Any) -> None:
    checkpoint = read_checkpoint(saved)
    write_checkpoint(saved, checkpoint.parameters, checkpoint.m, checkpoint.v, change(checkpoint.state))
    with pytest.raises(ValueError):
        SambaStack.from_checkpoint(saved)


@pytest.mark.parametrize("field", ["parameters", "exp_avg", "exp_avg_sq"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_not_written(saved: Path, field: str, value: float) -> None:
    other, before = SambaStack.from_checkpoint(saved), saved.read_bytes()
    other.state_dict(_copy_arrays=False)[field]["norm_f.weight"][3] = value
    with pytest.raises(CheckpointError, match=rf"run\.ckpt is not written.*{field}\['norm_f.weight'\] must be finite"):
        other.save_checkpoint(saved)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == [saved.name]


@pytest.mark.parametrize("field", ["parameters", "m", "v"])
def test_values_that_are_not_finite_are_not_read(saved: Path, field: str) -> None:
    checkpoint = read_checkpoint(saved)
    getattr(checkpoint, field)["norm_f.weight"][3] = np.nan
    write_checkpoint(saved, checkpoint.parameters, checkpoint.m, checkpoint.v, checkpoint.state)
    with pytest.raises(CheckpointError, match=r"run\.ckpt .*\['norm_f.weight'\] must be finite"):
        SambaStack.from_checkpoint(saved)


def test_negative_means_of_squares_are_refused(made: SambaStack, saved: Path) -> None:
    state = made.state_dict()
    state["exp_avg_sq"]["norm_f.weight"][3] = -1.0
    with pytest.raises(ValueError, match=r"exp_avg_sq\['norm_f.weight'\] .* at least 0, but \[3\] is -1"):
        made.load_state_dict(state)
    checkpoint = read_checkpoint(saved)
    write_checkpoint(saved, checkpoint.parameters, checkpoint.m, state["exp_avg_sq"], checkpoint.state)
    with pytest.raises(CheckpointError, match=r"run\.ckpt .*exp_avg_sq\['norm_f.weight'\]"):
        SambaStack.from_checkpoint(saved)


def test_a_file_that_cannot_be_written_leaves_the_old_one(made: SambaStack, saved: Path) -> None:
    before = saved.read_bytes()
    with pytest.raises(CheckpointError):
        made.save_checkpoint(saved.parent / "missing" / "run.ckpt")
    assert saved.read_bytes() == before


def test_a_run_s_checkpoint_goes_on_in_a_stack(cli: Cli, tiny_artifact: Path, tiny_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    cli.ok("run", tiny_artifact, "--data", tiny_data, "--steps", 2, "--out", out, "--quiet")
    path = out / "checkpoints" / "step-00000002.safetensors"
    back = SambaStack.from_checkpoint(path)
    assert (back.config, back.optimizer.t, back.accumulation_steps) == (TINY, 2, 2)
    assert back.optimizer.lr_schedule.config()["kind"] == tiny.SCHEDULE["kind"]
    assert back.train_step(IDS, TARGETS)["step"] == 3
    for name, array in read_checkpoint(path).parameters.items():
        assert array.shape == back.parameters()[name].shape
