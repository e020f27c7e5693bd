"""compile, inspect, targets, cache, opt."""

import json

import pytest

from tests.bf16 import needs_bf16

from .conftest import TINY


def test_compile_reports_and_inspect_shows(cli, artifact):
    result = json.loads(cli.ok("compile", TINY, "-o", "again.trainc", "--json", "--quiet").stdout)
    assert result["artifact"] == "again.trainc"
    modules = result["targets"]["cpu"]["modules"]
    assert result["size_bytes"] == sum(module["size_bytes"] for module in modules.values())
    assert all(module["cached"] == (module["compile_s"] == 0) for module in modules.values())
    assert {"gradients", "accumulate", "update", "eval_loss", "forward", "prefill", "decode"} <= set(result["entries"])
    manifest = json.loads(cli.ok("inspect", "again.trainc", "--json").stdout)
    assert manifest == json.loads((artifact / "manifest.json").read_text())
    shown = cli.ok("inspect", "again.trainc").stdout
    for word in (*result["entries"], "params", "d_model 64", "cpu"):
        assert word in shown


def test_the_same_input_gives_the_same_bytes(cli, artifact):
    cli.ok("compile", TINY, "-o", "again.trainc", "--quiet", env={"TRAINC_CACHE_DIR": str(cli.folder / "cache")})
    for path in artifact.rglob("*"):
        if path.is_file():
            assert (cli.folder / "again.trainc" / path.relative_to(artifact)).read_bytes() == path.read_bytes()


def test_a_dry_run_writes_nothing(cli):
    assert "nothing was written" in cli.ok("compile", TINY, "-o", "x.trainc", "--dry-run").stdout
    result = json.loads(cli.ok("compile", TINY, "-o", "x.trainc", "--dry-run", "--json").stdout)
    assert result["artifact"] is None
    assert result["entries"]
    assert not (cli.folder / "x.trainc").exists()


def test_several_targets_are_reported(cli):
    arguments = ("compile", TINY, "-o", "x.trainc", "--dry-run", "-t", "cuda", "-t", "x86-64-v3", "-t", "cuda")
    assert list(json.loads(cli.ok(*arguments, "--json").stdout)["targets"]) == ["cuda", "x86-64-v3"]
    error = cli.fails(2, *arguments, "--precision", "bf16")
    assert "'bf16' is not offered for target 'x86-64-v3'" in error


@needs_bf16
def test_bf16_is_compiled_in_fast_mode_and_shown(cli):
    result = json.loads(cli.ok("compile", TINY, "-o", "x.trainc", "--precision", "bf16", "--json").stdout)
    assert (result["precision"], result["numeric_mode"]) == ("bf16", "fast")
    assert "fast, bf16" in cli.ok("inspect", "x.trainc").stdout.splitlines()[0]


def test_an_unwritable_cache_is_one_line_of_warning(cli, tmp_path):
    (tmp_path / "file").write_text("")
    run = cli.ok("compile", TINY, "-o", "x.trainc", "--quiet", env={"TRAINC_CACHE_DIR": str(tmp_path / "file")})
    (line,) = run.stderr.splitlines()
    assert line.startswith("trainc: warning: ")
    assert "TRAINC_CACHE_DIR" in line
    cli.ok("inspect", "x.trainc")


def test_targets_and_devices(cli):
    rows = {row["target"]: row for row in json.loads(cli.ok("targets", "--json").stdout)["targets"]}
    assert rows["cpu"]["driver"] == "local-task"
    assert rows["cpu"]["arch"]
    assert {"rocm", "mi300x"} <= set(rows["gfx942"]["aliases"])
    assert rows["lavapipe"]["subgroup_sizes"] == [8]
    shown = cli.ok("targets").stdout
    assert shown.startswith("TARGET")
    assert all(name in shown for row in rows.values() for name in (row["target"], *row["aliases"]))
    devices = {row["device"]: row for row in json.loads(cli.ok("targets", "--devices", "--json").stdout)["devices"]}
    assert devices["cpu"]["available"]
    assert devices["cpu"]["driver"] == "local-task"
    assert all(row["available"] is not bool(row["reason"]) for row in devices.values())
    lines = cli.ok("targets", "--devices").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["DEVICE", *devices]


def test_cache_info_and_clear(cli, tmp_path):
    env = {"TRAINC_CACHE_DIR": str(tmp_path / "cache")}
    cli.ok("targets", env=env)  # asks the compiler about this machine and keeps the answer
    info = json.loads(cli.ok("cache", "info", "--json", env=env).stdout)
    assert info["folder"] == env["TRAINC_CACHE_DIR"]
    assert info["entries"] == 1
    assert "holds 1 modules" in cli.ok("cache", "info", env=env).stdout
    assert json.loads(cli.ok("cache", "clear", "--json", env=env).stdout)["entries"] == 1
    assert cli.ok("cache", "clear", "--quiet", env=env).stdout == ""
    assert json.loads(cli.ok("cache", "info", "--json", env=env).stdout)["entries"] == 0


PROGRAM = """
module {
  func.func @f(%arg0: tensor<4xf32>) -> tensor<4xf32> {
    %0 = "train.add"(%arg0, %arg0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %1 = "train.add"(%arg0, %arg0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %2 = "train.add"(%0, %1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    return %2 : tensor<4xf32>
  }
}
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.mlir"
    path.write_text(PROGRAM)
    return path


def test_opt_runs_passes_in_order(cli, program):
    assert cli.ok("opt", program).stdout.count("train.add") == 3
    assert cli.ok("opt", program, "--pass", "cse").stdout.count("train.add") == 2
    lowered = cli.ok("opt", program, "--pass", "decompose", "cse", "lower-map").stdout
    assert "train." not in lowered
    assert lowered.count("linalg.generic") == 2


def test_opt_reads_standard_input(cli, program):
    from_file = cli.ok("opt", program, "--pass", "cse").stdout
    assert cli.ok("opt", "-", "--pass", "cse", input=PROGRAM).stdout == from_file
    assert json.loads(cli.ok("opt", program, "--pass", "cse", "--json").stdout) == {
        "passes": ["cse"],
        "program": from_file,
    }


def test_an_invalid_program_is_3(cli, tmp_path):
    path = tmp_path / "bad.mlir"
    path.write_text(PROGRAM.replace("train.add", "train.no_such_op"))
    assert "no_such_op" in cli.fails(3, "opt", path)
