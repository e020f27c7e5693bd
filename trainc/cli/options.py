"""Arguments and options that several verbs share, so that they read the same everywhere."""

from pathlib import Path
from typing import Annotated

import typer

Artifact = Annotated[
    Path, typer.Argument(metavar="OUT.trainc", help="A compiled artifact (a directory).", show_default=False)
]
MorePaths = Annotated[
    list[Path] | None,
    typer.Argument(metavar="PATH", help="More paths of data, after --data.", show_default=False),
]
Data = Annotated[
    list[Path],
    typer.Option(
        "--data",
        metavar="PATH",
        help="A file or directory of text; several may follow. Links to directories inside one are not followed.",
        show_default=False,
    ),
]
Weights = Annotated[
    Path,
    typer.Option(
        "--weights",
        metavar="CKPT",
        help="A checkpoint file, or a run's directory for its latest one.",
        show_default=False,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="D",
        help="cpu (default), vulkan, cuda, rocm, metal, one with a number like cuda:1, or auto for the fastest.",
    ),
]
NoVerify = Annotated[
    bool,
    typer.Option(
        "--no-verify", help="Trust a device other than the CPU without running the artifact's self-test first."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print the result, or the error, as one JSON object.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes, only the result.")]
