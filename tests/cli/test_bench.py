"""`trainc bench`: what it reports. How fast things are is not tested here."""

import json
import re
import statistics

import pytest

from trainc.cli.main import main

ENTRIES = {"gradients", "norms", "update", "host"}


@pytest.fixture(scope="module")
def profiled(artifact, tmp_path_factory):
    """The result of one profiled run, and what it told on the way."""
    from tests.cli.conftest import Cli

    run = Cli(tmp_path_factory.mktemp("bench")).ok("bench", artifact, "--steps", 2, "--profile", "--json")
    return json.loads(run.stdout), run.stderr


def test_what_is_measured(cli, artifact):
    result = json.loads(cli.ok("bench", artifact, "--steps", 3, "--device", "auto", "--json").stdout)
    assert result["tokens_per_step"] == 4 * 64
    assert set(result["entries"]) == ENTRIES
    for times in (result["step"], *result["entries"].values(), result["decode"]):
        assert times["count"] == 3
        assert times["calls"] == 1
        assert 0 < times["min_ms"] <= times["median_ms"]
    # Parts are rounded to 0.1 us, and medians of parts do not add up: minima stay below the whole's median.
    assert sum(part["min_ms"] for part in result["entries"].values()) <= result["step"]["median_ms"] + 0.01
    assert result["tokens_per_s"] == pytest.approx(256e3 / result["step"]["median_ms"], rel=1e-2)
    assert result["decode"]["rows"] == 1
    assert result["decode"]["tokens_per_s"] == pytest.approx(1e3 / result["decode"]["median_ms"], rel=1e-2)
    assert result["peak_memory_bytes"] > 2**20
    assert result["threads"] >= 1
    assert "profile" not in result


def test_for_people(cli, artifact):
    run = cli.ok("bench", artifact, "--steps", 2)
    assert run.stderr.startswith("bench: 2 steps\nstep 1  loss ")
    shown = [line.split()[0] for line in run.stdout.splitlines() if line]
    assert shown == [
        "ENTRY",
        "step",
        *sorted(ENTRIES - {"host"}),
        "host",
        "decode",
        "training",
        "decoding",
        "peak",
        "measured",
    ]


def test_quiet_leaves_only_the_result(cli, artifact):
    assert cli.ok("bench", artifact, "--steps", 1, "--quiet", "--json").stderr == ""


def test_steps_must_be_positive(cli, artifact):
    assert "--steps" in cli.fails(2, "bench", artifact, "--steps", 0)


def test_a_profile_without_a_compiler_says_so_by_name(artifact, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["bench", str(artifact), "--profile"]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert "iree-base-compiler" in said.err


def test_nearly_all_time_has_an_op(profiled):
    result, said = profiled
    profile = result["profile"]
    assert "compile the artifact again" not in said
    dispatches = profile["dispatches"]
    assert {row["entry"] for row in dispatches} == ENTRIES - {"host"}
    assert sum(row["time_ms"] for row in dispatches) == pytest.approx(profile["time_ms"])
    assert sum(row["share"] for row in dispatches if row["ops"]) >= 0.95
    assert sum(row["calls"] for row in dispatches) == profile["calls"]
    assert profile["limit_ms"] > 0
    assert sum(op["share"] for op in profile["ops"]) == pytest.approx(1)
    assert {"linear", "linear_grad_weight", "mamba3", "mamba3_grad", "attention", "adamw"} <= {
        op["op"] for op in profile["ops"]
    }


def test_dispatches_name_layers_and_sources(profiled):
    for row in profiled[0]["profile"]["dispatches"]:
        assert sum(row["ops"].values()) == pytest.approx(1 if row["ops"] else 0)
        for source in row["sources"]:
            assert re.fullmatch(r"trainc/[a-z0-9_/]+\.py:\d+", source)
    named = {layer for row in profiled[0]["profile"]["dispatches"] for layer in row["layers"]}
    assert {"embed", "layers.0", "layers.1", "norm_f", "lm_head", "loss"} <= named


def test_operations_and_bytes_of_a_product(profiled):
    """The gate and up products of the MLP: 256 tokens, 64 to 128 features, with or without what is fused into them."""
    rows = [row for row in profiled[0]["profile"]["dispatches"] if row["name"].endswith("matmul_like_256x128x64_f32")]
    assert rows
    for row in rows:
        product = 2 * 256 * 128 * 64 * row["calls"]
        assert product <= row["flops"] <= 1.2 * product
        assert row["bytes"] >= 4 * (256 * 64 + 64 * 128 + 256 * 128) * row["calls"]
        assert row["limit_share"] > 0


def test_every_dispatch_of_the_step_is_counted(profiled):
    counted = [row for row in profiled[0]["profile"]["dispatches"] if row["bytes"] is not None]
    assert sum(row["share"] for row in counted) >= 0.95
    assert statistics.fmean(row["flops"] is not None for row in counted) >= 0.95


def test_the_profile_for_people(cli, artifact):
    lines = cli.ok("bench", artifact, "--steps", 1, "--profile").stdout.splitlines()
    assert lines[0].split()[:4] == ["TIME", "ms", "SHARE", "CALLS"]
    assert any(line.startswith("limits ") for line in lines)
    assert any(re.match(r"linear_grad_weight +\d+ +[\d.]+ +[\d.]+%$", line) for line in lines)
