"""`trainc demo`: compile, train, evaluate and sample a small model on text that every machine has."""

import itertools
import sysconfig
import time
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer

from trainc.cli import options, output
from trainc.cli.progress import Reporter
from trainc.core.errors import DataError, UnsupportedError

DEFAULT_OUT = Path("trainc-demo")
DEFAULT_STEPS = 1200
PROMPT = "def "
SAMPLE_TOKENS = 400
VALIDATION_EVERY = 20
"""Of the text's files, each one with a number divisible by this is for validation."""
VALIDATION_WINDOWS = 256
LAST_STEPS = 50
"""The training loss and the speed that are reported are means over this many steps at the end."""

_NOT_LIBRARY = {"site-packages", "dist-packages", "test", "tests", "idlelib", "__pycache__", "encodings"}

Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Where everything is written; default a new ./trainc-demo."),
]
Steps = Annotated[int, typer.Option("--steps", metavar="N", min=1, help="Training steps.")]
Seed = Annotated[int, typer.Option("--seed", metavar="S", min=0, help="Of weights and data order.")]


def demo_command(
    out: Out = None,
    steps: Steps = DEFAULT_STEPS,
    seed: Seed = 0,
    device: options.Device = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compile, train and sample a small byte model.

    It learns from the sources of Python's own library.
    """
    start_s = time.monotonic()
    folder = out or _free_folder(DEFAULT_OUT)
    with Reporter(quiet) as reporter:
        reporter.note(f"writing to {folder}")
        train_text, validation_text = _write_text(folder / "text")
        artifact = _compile(folder / "demo.trainc", reporter)
        result = _train(artifact, folder, train_text, steps, seed, device, reporter)
        result |= _judge(artifact, folder, validation_text, seed, device)
        result["plot"] = _plot(folder, reporter)
    result["time_s"] = round(time.monotonic() - start_s, 1)
    if as_json:
        output.emit_json(result)
    else:
        _show(result)


def _free_folder(wanted: Path) -> Path:
    """The folder itself, or the first numbered one beside it that does not exist: earlier results stay."""
    for number in itertools.count(2):
        if not wanted.exists():
            break
        wanted = wanted.with_name(f"{DEFAULT_OUT.name}-{number}")
    return wanted


def _write_text(folder: Path) -> tuple[Path, Path]:
    """Gathers the sources of Python's standard library into one file to train on and one to validate on."""
    library = Path(sysconfig.get_paths()["stdlib"])
    files = [path for path in sorted(library.rglob("*.py")) if _NOT_LIBRARY.isdisjoint(path.relative_to(library).parts)]
    if len(files) < VALIDATION_EVERY:
        raise DataError(
            f"expected the sources of Python's library in {library}, found {len(files)} files; use `trainc run` with "
            "your own text"
        )
    folder.mkdir(parents=True, exist_ok=True)
    parts = {folder / "train.txt": bytearray(), folder / "validation.txt": bytearray()}
    train, validation = parts
    for number, path in enumerate(files):
        parts[train if number % VALIDATION_EVERY else validation] += path.read_bytes()
    for path, text in parts.items():
        path.write_bytes(text)
    return train, validation


def _compile(path: Path, reporter: Reporter) -> Path:
    from trainc.frontends.samba.config_file import load_config
    from trainc.frontends.samba.tracing.build import compile_samba

    start_s = time.monotonic()
    with resources.as_file(resources.files("trainc.cli") / "demo.toml") as config:
        compile_samba(load_config(config), path, progress=reporter.note)
    reporter.note(f"compiled in {time.monotonic() - start_s:.1f} s")
    return path


def _train(
    artifact: Path, folder: Path, text: Path, steps: int, seed: int, device: str | None, reporter: Reporter
) -> dict[str, Any]:
    from trainc.cli.loading import Model
    from trainc.runtime.loop import RunOptions, train
    from trainc.runtime.metrics import read_metrics
    from trainc.runtime.step import TrainStep

    model = Model.open(artifact)
    trainer = TrainStep(model.program(device), model.driver)
    run = folder / "run"
    report = train(trainer, model.windows([text]), RunOptions(out=run, steps=steps, seed=seed), reporter)
    last = read_metrics(run / "metrics.jsonl")[-LAST_STEPS:]
    return {
        "artifact": str(artifact),
        "checkpoint": str(report.checkpoint),
        "steps": report.step,
        "train_loss": _mean(last, "train/loss"),
        "tokens_per_s": _mean(last, "perf/tokens_per_s"),
    }


def _judge(artifact: Path, folder: Path, text: Path, seed: int, device: str | None) -> dict[str, Any]:
    from trainc.cli.loading import Model, load_weights
    from trainc.cli.sample import decode, encode
    from trainc.runtime.decode import Decoder, generate
    from trainc.runtime.evaluation import evaluate
    from trainc.runtime.sampling import SamplingOptions

    model = Model.open(artifact)
    program = model.program(device)
    params = load_weights(program, folder / "run")
    found = evaluate(program, model.driver, params, model.windows([text]), VALIDATION_WINDOWS)
    decoder = Decoder(program, params)
    sampling = SamplingOptions(temperature=0.8, top_p=0.95, seed=seed)
    (sample, *_) = generate(decoder, encode(PROMPT, decoder), SAMPLE_TOKENS, sampling)
    return {"validation_loss": found.loss, "sample": PROMPT + decode(sample.tokens).decode(errors="replace")}


def _plot(folder: Path, reporter: Reporter) -> str | None:
    from trainc.runtime.plot import plot_loss

    try:
        return str(plot_loss(folder / "run" / "metrics.jsonl", folder / "loss.png"))
    except UnsupportedError as error:
        reporter.note(f"no plot: {error}")
        return None


def _mean(rows: list[dict[str, Any]], key: str) -> float:
    return float(sum(row[key] for row in rows) / len(rows))


def _show(result: dict[str, Any]) -> None:
    output.emit(f"train loss       {result['train_loss']:.3f} nats per byte")
    output.emit(f"validation loss  {result['validation_loss']:.3f} nats per byte")
    output.emit(f"speed            {result['tokens_per_s']:,.0f} tokens/s")
    output.emit(f"loss plot        {result['plot'] or 'not drawn: install trainc[plot]'}")
    output.emit(f"checkpoint       {result['checkpoint']}")
    output.emit(f"total time       {result['time_s']:.0f} s\n\nThe model writes:\n")
    output.emit(result["sample"])
