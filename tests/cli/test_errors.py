"""Every kind of mistake: its exit code, and one line that names what is wrong."""

import json
import shutil
import signal
import subprocess
import sys
import time

import pytest

from trainc.cli import compile as compile_verb
from trainc.cli import main as main_module
from trainc.cli.main import main
from trainc.runtime.discovery import discover

from .conftest import TINY


def config(tmp_path, **changes: str):
    text = TINY.read_text("utf-8")
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "model.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["no-such-verb"], "no-such-verb"),
        (["compile"], "CONFIG.toml"),
        (["compile", TINY], "--out"),
        (["compile", TINY, "-o", "x.trainc", "--no-such-option"], "--no-such-option"),
        (["compile", TINY, "-o", "x.trainc", "--mode", "sloppy"], "sloppy"),
        (["compile", TINY, "-o", "x.trainc", "--mode", "identical"], "identical"),
        (["compile", TINY, "-o", "x.trainc", "--precision", "f16"], "f16"),
        (["compile", TINY, "-o", "x.trainc", "--precision", "bf16", "--mode", "deterministic"], "bf16"),
        (["compile", TINY, "-o", "x.trainc", "--target", "abacus"], "abacus"),
        (["compile", TINY, "-o", "x.trainc", "-t", "cpu", "-t", "abacus"], "abacus"),
        (["compile", "missing.toml", "-o", "x.trainc"], "missing.toml"),
        (["run", "x.trainc", "--data", "d", "--steps", "0", "--out", "r"], "--steps"),
        (["opt", "missing.mlir", "--pass", "no-such-pass"], "missing.mlir"),
        (["opt", "-", "--pass", "no-such-pass"], "no-such-pass"),
    ],
)
def test_usage_is_2(cli, arguments, word):
    assert word in cli.fails(2, *arguments)
    assert not (cli.folder / "x.trainc").exists()


def test_an_unknown_configuration_key_is_named(cli, tmp_path):
    path = config(tmp_path, intermediate="intermediat")
    line = cli.fails(2, "compile", path, "-o", "x.trainc")
    assert "model.intermediat" in line
    assert str(path) in line
    assert not (tmp_path / "x.trainc").exists()


def test_an_impossible_shape_is_named(cli, tmp_path):
    line = cli.fails(2, "compile", config(tmp_path, **{"d_model = 64": "d_model = 65"}), "-o", "x.trainc")
    assert "d_model" in line
    assert not (tmp_path / "x.trainc").exists()


def test_the_output_is_never_something_else(cli, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("years of work")
    run = cli("compile", TINY, "-o", "mine")
    assert run.returncode == 4
    assert "mine" in run.stderr
    assert (tmp_path / "mine/thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("verb", ["inspect", "run", "eval", "sample"])
def test_a_missing_artifact_is_4(cli, verb, text):
    arguments = {
        "inspect": [],
        "run": ["--data", text, "--steps", 1, "--out", "r"],
        "eval": ["--weights", "w", "--data", text],
        "sample": ["--weights", "w", "--prompt", "a"],
    }[verb]
    assert "nowhere.trainc" in cli.fails(4, verb, "nowhere.trainc", *arguments)
    assert not (cli.folder / "r").exists()


def flip_a_byte(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_damaged_module_is_4(cli, artifact, tmp_path):
    copy = tmp_path / "copy.trainc"
    shutil.copytree(artifact, copy)
    module = next(copy.glob("modules/*/*.vmfb"))
    flip_a_byte(module)
    assert module.name in cli.fails(4, "inspect", copy)


def test_an_unknown_manifest_field_is_4(cli, artifact, tmp_path):
    copy = tmp_path / "copy.trainc"
    shutil.copytree(artifact, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps(manifest | {"surprise": 1}))
    assert "surprise" in cli.fails(4, "inspect", copy)


def test_a_foreign_directory_is_4(cli, tmp_path):
    (tmp_path / "other").mkdir()
    assert "other" in cli.fails(4, "inspect", "other")


@pytest.mark.parametrize(
    ("content", "word"),
    [(None, "data.txt"), (b"", "data.txt"), (b"short", "window")],
    ids=["missing", "empty", "short"],
)
def test_data_that_cannot_be_used_is_1(cli, artifact, tmp_path, content, word):
    if content is not None:
        (tmp_path / "data.txt").write_bytes(content)
    assert word in cli.fails(1, "run", artifact, "--data", "data.txt", "--steps", 1, "--out", "r")
    assert not (tmp_path / "r").exists()


def test_no_such_device_is_5(cli, artifact, text, tmp_path):
    line = cli.fails(5, "run", artifact, "--data", text, "--steps", 1, "--out", "r", "--device", "abacus")
    assert "abacus" in line
    assert not (tmp_path / "r").exists()


def test_a_device_it_was_not_compiled_for_is_5(cli, artifact, text, vulkan, tmp_path):
    line = cli.fails(5, "run", artifact, "--data", text, "--steps", 1, "--out", "r", "--device", vulkan.name)
    assert f"compiled for: cpu (local-task); found {vulkan.name}" in line
    assert "--target vulkan" in line
    assert not (tmp_path / "r").exists()


def test_a_missing_driver_is_5(cli, artifact, text):
    missing = next(info for info in discover() if not info.available)
    line = cli.fails(5, "run", artifact, "--data", text, "--steps", 1, "--out", "r", "--device", missing.name)
    assert missing.reason in line


def test_a_damaged_checkpoint_is_4(cli, artifact, text, run, tmp_path):
    copy = tmp_path / "copy.safetensors"
    shutil.copy(run / "checkpoints/step-00000004.safetensors", copy)
    flip_a_byte(copy)
    assert "copy.safetensors" in cli.fails(4, "eval", artifact, "--weights", copy, "--data", text)
    copy.write_bytes(copy.read_bytes()[:-100])
    assert "copy.safetensors" in cli.fails(4, "sample", artifact, "--weights", copy, "--prompt", "a")


def test_weights_that_are_not_there_are_4(cli, artifact, text, tmp_path):
    assert "no.safetensors" in cli.fails(4, "eval", artifact, "--weights", "no.safetensors", "--data", text)
    (tmp_path / "empty").mkdir()
    assert "empty" in cli.fails(4, "eval", artifact, "--weights", "empty", "--data", text)


def test_a_run_is_not_overwritten(cli, artifact, text, run):
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert "resume" in cli.fails(2, "run", artifact, "--data", text, "--steps", 9, "--out", run)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("option", "value"), [("--temperature", "-1"), ("--top-p", "0"), ("--top-k", "0"), ("--prompt", ""), ("--stop", "")]
)
def test_sampling_options_out_of_range_are_2(cli, artifact, run, option, value):
    line = cli.fails(2, "sample", artifact, "--weights", run, "--prompt", "a", option, value)
    assert option.strip("-").replace("-", "_") in line.replace("-", "_")


def test_an_error_is_one_json_object_with_json(cli, tmp_path):
    run = cli("compile", "missing.toml", "-o", "x.trainc", "--json")
    assert run.stdout == ""
    error = json.loads(run.stderr)["error"]
    assert error["type"] == "ConfigError"
    assert error["exit_code"] == run.returncode == 2
    assert "missing.toml" in error["message"]


def test_a_usage_error_is_one_json_object_too(cli):
    run = cli("compile", "--json")
    assert json.loads(run.stderr)["error"]["exit_code"] == run.returncode == 2


def test_a_traceback_only_on_request(cli):
    run = cli("inspect", "nowhere", env={"TRAINC_TRACEBACK": "1"})
    assert "Traceback" in run.stderr
    assert run.returncode == 4


def test_a_defect_is_one_line_and_1(monkeypatch, capsys):
    def broken(*arguments, **options):
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(compile_verb.output, "emit_table", broken)
    assert main(["targets"]) == 1
    assert capsys.readouterr().err.startswith("trainc: error: internal error: ZeroDivisionError: a defect")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_130_and_stops_the_compiler(cli, tmp_path, number):
    (tmp_path / "tmp").mkdir()
    env = cli.full_environment | {"TRAINC_CACHE_DIR": str(tmp_path / "cache"), "TMPDIR": str(tmp_path / "tmp")}
    process = subprocess.Popen(
        cli.command("compile", TINY, "-o", "out.trainc"),
        cwd=tmp_path,
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while not list((tmp_path / "tmp").iterdir()):  # a compiler runs
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(0.3)  # the folder is made a moment before anyone is there to remove it
    process.send_signal(number)
    error = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130
    assert error.splitlines()[-1] == "trainc: error: interrupted"
    assert not list((tmp_path / "tmp").iterdir())
    assert not (tmp_path / "out.trainc").exists()


def test_a_keyboard_interrupt_before_the_verb_is_130(monkeypatch, capsys):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(main_module, "app", interrupted)
    assert main(["targets"]) == 130
    assert capsys.readouterr().err == "trainc: error: interrupted\n"


def test_a_keyboard_interrupt_while_the_program_is_loaded_is_130():
    code = """if True:
        import sys

        class Interrupting:
            def find_spec(self, name, path=None, target=None):
                if name == "typer":
                    raise KeyboardInterrupt

        sys.meta_path.insert(0, Interrupting())
        from trainc.cli.__main__ import run
        sys.exit(run())
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "trainc: error: interrupted\n")


def test_a_keyboard_interrupt_is_130(monkeypatch, capsys):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(compile_verb.output, "emit_table", interrupted)
    assert main(["targets"]) == 130
    assert capsys.readouterr().err == "trainc: error: interrupted\n"
