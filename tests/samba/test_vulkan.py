"""Samba on a Vulkan device: gradients against float64, golden values; training, resuming, sampling as on the CPU.

The device is Mesa's in software; it translates every kernel once and keeps the result, so what is new takes seconds.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import Cli
from tests.samba.harness import build
from tests.samba.test_golden import CASES, golden_batch, golden_run
from tests.samba.test_gradients import PAIRS, PRODUCT, check
from trainc.frontends.samba.tracing.entries import MODEL, TRAIN
from trainc.runtime.device import Device
from trainc.runtime.losses import total_loss
from trainc.runtime.metrics import read_metrics

ALWAYS = ("L65-mqa-dropout", "L131-mamba3")

# What the golden values are compared with on every device but the CPU, whose sums have an order of their own.
GOLDEN_TOLERANCE = 2e-5

# Fifty steps carry a difference in the last bits on; measured 2e-8.
LOSS_TOLERANCE = 1e-4


@pytest.mark.parametrize("name", ALWAYS)
def test_gradients(name: str, vulkan: Device, tmp_path: Path) -> None:
    check(PAIRS[name], tmp_path, "lavapipe", vulkan.name)


def test_gradients_of_code_for_any_subgroup_size(vulkan: Device, tmp_path: Path) -> None:
    check(PAIRS["L64-gqa"], tmp_path, "vulkan", vulkan.name)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["lavapipe", "vulkan"])
@pytest.mark.parametrize("name", PAIRS)
def test_gradients_of_all_pairs(name: str, target: str, vulkan: Device, tmp_path: Path) -> None:
    check(PAIRS[name], tmp_path, target, vulkan.name)


@pytest.mark.slow
@pytest.mark.parametrize("name", PRODUCT)
def test_gradients_product(name: str, vulkan: Device, tmp_path: Path) -> None:
    check(PRODUCT[name], tmp_path, "lavapipe", vulkan.name)


@pytest.mark.parametrize("name", [CASES[0], *(pytest.param(name, marks=pytest.mark.slow) for name in CASES[1:])])
def test_golden_values(name: str, golden: Callable[[str], Any], vulkan: Device, tmp_path: Path) -> None:
    case: dict[str, Any] = golden("samba")["samba"][name]
    model = build(golden_run(case), tmp_path, (TRAIN, MODEL), target="lavapipe", device=vulkan.name)
    ids, targets = golden_batch(case)
    logits = model.call("forward", ids=ids)["logits"]
    np.testing.assert_allclose(logits[0, -1, :8], case["logits"]["row0_last_first8"], rtol=0, atol=GOLDEN_TOLERANCE)
    nll = total_loss(model.call("eval_loss", ids=ids, targets=targets)["nll"])
    assert nll / ids.size == pytest.approx(case["loss"], abs=GOLDEN_TOLERANCE)
    loss, gradients = model.gradients(ids, targets, float(ids.size))
    assert loss == pytest.approx(case["loss_and_grads"]["loss"], abs=GOLDEN_TOLERANCE)
    for key, first in case["loss_and_grads"]["grad_first4"].items():
        np.testing.assert_allclose(gradients[key].ravel()[: len(first)], first, rtol=0, atol=GOLDEN_TOLERANCE)


@pytest.fixture(scope="module")
def trained(vulkan: Device, tmp_path_factory: pytest.TempPathFactory) -> Cli:
    """A folder with an artifact for CPU and Vulkan, and runs of fifty steps on each of them."""
    folder = tmp_path_factory.mktemp("devices")
    cli = Cli(folder)
    (folder / "config.toml").write_text(
        """
[model]
vocab = 256
d_model = 32
layers = ["mamba3", "attention"]
n_heads = 2
intermediate = 48
[batch]
rows = 2
length = 32
accumulation_steps = 2
[optimizer]
lr = 1e-2
max_norm = 1.0
[decode]
max_tokens = 64
"""
    )
    (folder / "data.txt").write_text("the same words again and again, in a row, and " * 200)
    cli.ok("compile", "config.toml", "-t", "cpu", "-t", "lavapipe", "-o", "m.trainc")
    for name in ("cpu", vulkan.name):
        cli.ok("run", "m.trainc", "--data", "data.txt", "--steps", 50, "--device", name, "--out", _folder(name))
    return cli


def test_fifty_steps_are_those_of_the_cpu(trained: Cli, vulkan: Device) -> None:
    here, there = (losses(trained.folder / _folder(name)) for name in ("cpu", vulkan.name))
    assert len(here) == 50
    assert here[-1] < 0.5 * here[0]
    assert there == pytest.approx(here, rel=LOSS_TOLERANCE)


@pytest.mark.parametrize("back", [False, True])
def test_a_run_goes_on_on_the_other_device(back: bool, trained: Cli, vulkan: Device) -> None:
    first, second = ("cpu", vulkan.name)[:: -1 if back else 1]
    out = f"moved-{back}"
    common = ("run", "m.trainc", "--data", "data.txt", "--out", out)
    trained.ok(*common, "--steps", 20, "--device", first)
    trained.ok(*common, "--steps", 50, "--device", second, "--resume")
    assert losses(trained.folder / out) == pytest.approx(losses(trained.folder / "on-cpu"), rel=LOSS_TOLERANCE)


def test_eval_and_greedy_samples_are_those_of_the_cpu(trained: Cli, vulkan: Device) -> None:
    texts, values = [], []
    for name in ("cpu", vulkan.name):
        options = ("m.trainc", "--weights", "on-cpu", "--device", name)
        sample = ("sample", *options, "--prompt", "the same", "--max-tokens", 24, "--temperature", 0)
        texts.append(trained.ok(*sample).stdout)
        values.append(json.loads(trained.ok("eval", *options, "--data", "data.txt", "--json").stdout)["eval/loss"])
    assert texts[0] == texts[1]
    assert values[0] == pytest.approx(values[1], rel=LOSS_TOLERANCE)


def losses(run: Path) -> list[float]:
    """The losses of a run's steps."""
    return [row["train/loss"] for row in read_metrics(run / "metrics.jsonl")]


def _folder(device: str) -> str:
    return f"on-{device.replace(':', '-')}"
