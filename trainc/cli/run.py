"""`trainc run`: train an artifact on data."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainc.cli import options, output
from trainc.cli.progress import Reporter, summary

if TYPE_CHECKING:
    from trainc.runtime.loop import RunReport
    from trainc.runtime.state import TrainState

Steps = Annotated[
    int,
    typer.Option("--steps", metavar="N", min=1, help="The step to end after, counted from 0.", show_default=False),
]
Out = Annotated[
    Path, typer.Option("--out", metavar="RUN", help="Directory of metrics and checkpoints.", show_default=False)
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the latest checkpoint in RUN, if there is one.")]
CheckpointEvery = Annotated[
    int | None,
    typer.Option("--checkpoint-every", metavar="N", min=1, help="Also write a checkpoint every N steps."),
]
Keep = Annotated[int, typer.Option("--keep", metavar="K", min=1, help="How many checkpoints to keep.")]
Seed = Annotated[
    int | None,
    typer.Option("--seed", metavar="S", min=0, help="Of weights, dropout and data order; default 0."),
]
PrintDigest = Annotated[
    bool, typer.Option("--print-digest", help="Print the SHA-256 of weights and moments at the end.")
]


def run_command(
    artifact: options.Artifact,
    data: options.Data,
    steps: Steps,
    out: Out,
    more: options.MorePaths = None,
    resume: Resume = False,
    checkpoint_every: CheckpointEvery = None,
    keep: Keep = 3,
    seed: Seed = None,
    device: options.Device = None,
    no_verify: options.NoVerify = False,
    print_digest: PrintDigest = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train an artifact on data.

    Ctrl-C and SIGTERM write a checkpoint and exit with 130; `--resume` goes on from it.
    """
    from trainc.cli.loading import Model
    from trainc.runtime.loop import RunOptions, train
    from trainc.runtime.step import TrainStep

    run_options = RunOptions(
        out=out, steps=steps, checkpoint_every=checkpoint_every, keep=keep, resume=resume, seed=seed
    )
    model = Model.open(artifact)
    windows = model.windows([*data, *(more or [])])
    with Reporter(quiet) as reporter:
        trainer = TrainStep(model.verified_program(device, reporter, no_verify), model.driver)
        report = train(trainer, windows, run_options, reporter)
    result = _result(report, out)
    if print_digest:
        result["digest"] = _digest(trainer.state)
    if as_json:
        output.emit_json(result)
        return
    output.emit(f"step {report.step}  {_outcome(result)}  checkpoint {report.checkpoint}")
    if print_digest:
        output.emit(f"digest {result['digest']}")


def _result(report: "RunReport", out: Path) -> dict[str, Any]:
    last = report.last
    return {
        "first_step": report.first_step,
        "step": report.step,
        "train/loss": None if last is None else last.loss,
        "train/grad_norm": None if last is None else last.grad_norm,
        "train/lr": None if last is None else last.lr,
        "checkpoint": str(report.checkpoint),
        "metrics": str(out / "metrics.jsonl"),
    }


def _outcome(result: dict[str, Any]) -> str:
    return summary(result) or "nothing left to do"


def _digest(state: "TrainState") -> str:
    digest = hashlib.sha256()
    for buffer in (state.params, state.m, state.v):
        digest.update(buffer.flat.tobytes())
    return digest.hexdigest()
