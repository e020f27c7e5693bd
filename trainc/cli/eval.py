"""`trainc eval`: the loss of weights on data."""

import math
from typing import Annotated

import typer

from trainc.cli import options, output
from trainc.cli.progress import Reporter

MaxWindows = Annotated[
    int | None, typer.Option("--max-windows", metavar="N", min=1, help="Take only the first N windows of the data.")
]


def eval_command(
    artifact: options.Artifact,
    weights: options.Weights,
    data: options.Data,
    more: options.MorePaths = None,
    max_windows: MaxWindows = None,
    device: options.Device = None,
    no_verify: options.NoVerify = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure the loss of trained weights on data.

    The mean over all tokens, in nats, without dropout.
    """
    from trainc.cli.loading import Model, load_weights
    from trainc.runtime.evaluation import evaluate

    model = Model.open(artifact)
    windows = model.windows([*data, *(more or [])])
    with Reporter(quiet) as reporter:
        program = model.verified_program(device, reporter, no_verify)
    found = evaluate(program, model.driver, load_weights(program, weights), windows, max_windows)
    if as_json:
        output.emit_json({"loss": found.loss, "bits_per_token": found.loss / math.log(2), "tokens": found.targets})
    else:
        output.emit(f"loss {found.loss:.6f} nats per token over {found.targets:,} tokens")
