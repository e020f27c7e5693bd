"""What cannot be used is refused by name, with the documented exit code, and nothing that exists is changed.

tests/cli/test_errors.py has the mistakes that any artifact shows; here are those of configurations and of runs.
"""

import json
import re
import resource
import shutil
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.conftest import TINY, Cli
from tests.samba import tiny
from trainc.cli.main import main
from trainc.cli.sample import encode
from trainc.core.errors import UsageError
from trainc.frontends.samba.config_file import load_config
from trainc.runtime.checkpoint import read_checkpoint, write_checkpoint

Change = Callable[[dict[str, Any]], None]

CONFIGURATIONS = {
    # name: (lines that replace or join those of a table, what the message must have)
    "unknown table": ({"optimiser": "lr = 1e-3"}, ["[optimiser]", "did you mean optimizer"]),
    "unknown key": ({"optimizer": "learning_rate = 1e-3"}, ["optimizer.learning_rate", "fields: lr"]),
    "missing key": ({"batch": "rows"}, ["batch.length is missing"]),
    "d_model of no mixer": ({"model": "d_model = 33"}, ["model.d_model", "33"]),
    "head_dim of another width": ({"model": "head_dim = 15"}, ["model.head_dim", "15 * 4"]),
    "odd head_dim": (
        {"model": 'd_model = 60\nhead_dim = 15\nlayers = ["attention"]'},
        ["model.head_dim", "even", "15"],
    ),
    "heads that do not divide": ({"model": "n_heads = 3"}, ["model.n_heads", "3"]),
    "n_kv_heads that do not divide": ({"model": "n_kv_heads = 3"}, ["model.n_kv_heads", "3"]),
    "unknown layer": ({"model": 'layers = ["mamba4"]'}, ["model.layers", "mamba4"]),
    "broken layer pattern": ({"model": 'layers = "2*(mamba3, attention"'}, ["model.layers"]),
    "no layers": ({"model": "layers = []"}, ["model.layers"]),
    "dropout of 1": ({"model": "dropout = 1.0"}, ["model.dropout", "1.0"]),
    "wrong type": ({"model": 'intermediate = "many"'}, ["model.intermediate", "many"]),
    "rows that do not divide": ({"batch": "accumulation_steps = 3"}, ["batch.accumulation_steps", "3"]),
    "learning rate that is no number": ({"optimizer": "lr = nan"}, ["optimizer.lr", "nan"]),
    "warmup without end": (
        {"schedule": 'kind = "cosine"\npeak_lr = 1e-3\nwarmup_steps = 9\ntotal_steps = 5'},
        ["schedule.total_steps", "at least 9, got 5"],
    ),
    "prefill above max_tokens": ({"decode": "prefill = 2000"}, ["decode.prefill", "2000"]),
}


def configuration(changes: dict[str, str]) -> str:
    """Return examples/samba_tiny.toml with lines of tables replaced or added; "rows" keeps only the rows of [batch]."""
    tables: dict[str, dict[str, str]] = {}
    for line in TINY.read_text("utf-8").splitlines():
        if line.startswith("["):
            table = tables.setdefault(line.strip("[]"), {})
        elif "=" in line:
            table[line.partition("=")[0].strip()] = line
    for name, lines in changes.items():
        if lines == "rows":
            tables[name] = {"rows": "rows = 4"}
            continue
        table = tables.setdefault(name, {})
        table.update({line.partition("=")[0].strip(): line for line in lines.splitlines()})
    return "\n".join(f"[{name}]\n" + "\n".join(table.values()) for name, table in tables.items())


@pytest.mark.parametrize("case", CONFIGURATIONS)
def test_a_configuration_is_refused_by_name(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changes, words = CONFIGURATIONS[case]
    monkeypatch.chdir(tmp_path)
    Path("model.toml").write_text(configuration(changes), "utf-8")
    assert main(["compile", "model.toml", "-o", "x.trainc"]) == 2
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert out == ""
    assert line.startswith("trainc: error: model.toml: ")
    for word in words:
        assert word in line
    assert [path.name for path in tmp_path.iterdir()] == ["model.toml"]


def test_without_a_mistake_the_configuration_is_taken(tmp_path: Path) -> None:
    (tmp_path / "model.toml").write_text(configuration({}), "utf-8")
    assert load_config(tmp_path / "model.toml") == load_config(TINY)


# --- runs -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tiny_artifact: Path, tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps, with checkpoints of the third and the fourth."""
    folder = tmp_path_factory.mktemp("trained")
    Cli(folder).ok("run", tiny_artifact, "--data", tiny_data, "--out", "run", "--steps", 4, "--checkpoint-every", 3)
    return folder / "run"


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of that run, to be damaged."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def resume(cli: Cli, code: int, artifact: Path, data: Path, run: Path, **options: Any) -> str:
    """Resume a run, which must fail and leave every file of it as it was; returns the one line it prints."""
    before = snapshot(run)
    line = cli.fails(
        code, "run", artifact, "--data", data, "--out", run, "--steps", 8, "--resume", "--quiet", **options
    )
    assert snapshot(run) == before
    return line


def changed_artifact(artifact: Path, folder: Path, change: Change) -> Path:
    """A copy of an artifact whose manifest was changed."""
    copy = Path(shutil.copytree(artifact, folder / "changed.trainc"))
    manifest = json.loads((copy / "manifest.json").read_text())
    change(manifest)
    (copy / "manifest.json").write_text(json.dumps(manifest))
    return copy


def changed_checkpoint(run: Path, change: Callable[[dict[str, np.ndarray]], None]) -> None:
    """Write the run's latest checkpoint anew, whole, with other weights."""
    path = run / "checkpoints/step-00000004.safetensors"
    found = read_checkpoint(path)
    parts = [dict(part) for part in (found.parameters, found.m, found.v)]
    for part in parts if change is not damage else parts[:1]:
        change(part)
    write_checkpoint(path, *parts, found.state)


def damage(weights: dict[str, np.ndarray]) -> None:
    weights["layers.1.up_proj.weight"][3, 4] = np.nan


def shorten(weights: dict[str, np.ndarray]) -> None:
    weights["layers.0.out_proj.weight"] = weights["layers.0.out_proj.weight"][:-1]


def test_data_outside_the_vocabulary(cli: Cli, tiny_artifact: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a.bin").write_bytes(bytes(range(61)))
    (tmp_path / "data/b.bin").write_bytes(bytes(20) + b"=" + bytes(20))
    line = cli.fails(1, "run", tiny_artifact, "--data", "data", "--steps", 1, "--out", "out")
    assert "b.bin has byte 61 at offset 20, outside the vocabulary of 61" in line
    assert not (tmp_path / "out").exists()


def test_a_prompt_outside_the_vocabulary() -> None:
    with pytest.raises(UsageError, match="byte 97 at 1, outside the model's vocabulary of 61"):
        encode("1a", types.SimpleNamespace(vocab=tiny.VOCAB))


def test_a_folder_without_a_file(cli: Cli, tiny_artifact: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "no data in empty" in cli.fails(1, "run", tiny_artifact, "--data", "empty", "--steps", 1, "--out", "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["cut short", "missing"])
def test_a_module_that_is_not_whole(cli: Cli, tiny_artifact: Path, tiny_data: Path, tmp_path: Path, kind: str) -> None:
    artifact = changed_artifact(tiny_artifact, tmp_path, lambda manifest: None)
    module = artifact / "modules/cpu/train.vmfb"
    if kind == "missing":
        module.unlink()
    else:
        module.write_bytes(module.read_bytes()[:-1])
    line = cli.fails(4, "run", artifact, "--data", tiny_data, "--steps", 1, "--out", "out")
    assert "train.vmfb" in line
    assert not (tmp_path / "out").exists()


def test_a_run_folder_that_is_a_file(cli: Cli, tiny_artifact: Path, tiny_data: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis").write_text("years of work")
    line = cli.fails(4, "run", tiny_artifact, "--data", tiny_data, "--steps", 1, "--out", "thesis", "--quiet")
    assert "thesis" in line
    assert (tmp_path / "thesis").read_text() == "years of work"


def test_a_checkpoint_cut_short(cli: Cli, tiny_artifact: Path, tiny_data: Path, run: Path) -> None:
    path = run / "checkpoints/step-00000004.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    line = resume(cli, 4, tiny_artifact, tiny_data, run)
    assert "step-00000004.safetensors is truncated" in line


def test_a_checkpoint_of_another_geometry(cli: Cli, tiny_artifact: Path, tiny_data: Path, run: Path) -> None:
    changed_checkpoint(run, shorten)
    line = resume(cli, 4, tiny_artifact, tiny_data, run)
    assert "step-00000004.safetensors" in line
    assert re.search(r"'layers\.0\.out_proj\.weight' must be \(32, 64\).* \(31, 64\)", line)


def test_a_checkpoint_of_other_settings(
    cli: Cli, tiny_artifact: Path, tiny_data: Path, run: Path, tmp_path: Path
) -> None:
    artifact = changed_artifact(tiny_artifact, tmp_path, lambda m: m["settings"]["optimizer"].update(eps=0.5))
    line = resume(cli, 4, artifact, tiny_data, run)
    assert "optimizer.eps must be 0.5, the checkpoint has " in line


def test_other_data(cli: Cli, tiny_artifact: Path, run: Path, tmp_path: Path) -> None:
    (tmp_path / "other.bin").write_bytes(bytes(50))
    line = resume(cli, 1, tiny_artifact, tmp_path / "other.bin", run)
    assert "trained on other data" in line


def test_a_weight_that_is_not_finite(cli: Cli, tiny_artifact: Path, tiny_data: Path, run: Path) -> None:
    changed_checkpoint(run, damage)
    line = resume(cli, 6, tiny_artifact, tiny_data, run)
    assert "step 5: the loss is nan" in line
    assert "first weight that is not finite is 'layers.1.up_proj.weight'" in line


def test_a_learning_rate_that_destroys(cli: Cli, tiny_artifact: Path, tiny_data: Path, tmp_path: Path) -> None:
    def absurd(manifest: dict[str, Any]) -> None:
        manifest["settings"]["schedule"] = None
        manifest["settings"]["optimizer"].update(lr=1e30, weight_decay=0.0)

    artifact = changed_artifact(tiny_artifact, tmp_path, absurd)
    arguments = ("--data", tiny_data, "--out", "run", "--checkpoint-every", 1, "--quiet")
    line = cli.fails(6, "run", artifact, *arguments, "--steps", 5)
    assert "step 2: the loss is nan" in line
    assert "gradient that is not finite is that of 'embed.weight'" in line
    assert (tmp_path / "run/checkpoints/latest").read_text() == "step-00000001.safetensors\n"
    weights = read_checkpoint(tmp_path / "run/checkpoints/step-00000001.safetensors").parameters
    assert all(np.isfinite(weight).all() for weight in weights.values())
    assert len((tmp_path / "run/metrics.jsonl").read_text().splitlines()) == 1


def limited(size_bytes: int) -> Callable[[], None]:
    """Let a process write no file beyond a size: the system refuses the bytes half way, as a full disk does."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))


@pytest.mark.skipif(sys.platform == "win32", reason="no limits on files")
def test_a_full_disk(cli: Cli, tiny_artifact: Path, tiny_data: Path, run: Path, tmp_path: Path) -> None:
    """The save after step 6 fails; what was there stays, and with room again the run goes on to the same bytes."""
    arguments = ("run", tiny_artifact, "--data", tiny_data, "--quiet", "--checkpoint-every", 3)
    before = snapshot(run / "checkpoints")
    line = cli.fails(4, *arguments, "--out", run, "--steps", 8, "--resume", preexec_fn=limited(200_000))
    assert "step-00000006.safetensors cannot be written: File too large" in line
    assert snapshot(run / "checkpoints") == before
    cli.ok(*arguments, "--out", run, "--steps", 8, "--resume")
    cli.ok(*arguments, "--out", "whole", "--steps", 8)
    name = "checkpoints/step-00000008.safetensors"
    assert (run / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_disk_too_full_for_metrics(cli: Cli, tiny_artifact: Path, tiny_data: Path, tmp_path: Path) -> None:
    arguments = ("run", tiny_artifact, "--data", tiny_data, "--quiet", "--out", "run", "--steps", 2)
    line = cli.fails(1, *arguments, preexec_fn=limited(100))
    assert "run/metrics.jsonl cannot be written: File too large" in line
    assert not list((tmp_path / "run/checkpoints").iterdir())
