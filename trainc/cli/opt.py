"""`trainc opt`: run passes over a program, for tests and for reading."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from trainc.cli import options, output
from trainc.core.errors import UsageError

File = Annotated[
    str, typer.Argument(metavar="FILE.mlir", help="A program; - reads standard input.", show_default=False)
]
MorePasses = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME", help="More passes, after --pass.", show_default=False),
]
Passes = Annotated[
    list[str] | None,
    typer.Option("--pass", metavar="NAME", help="Run this pass; several run in order.", show_default=False),
]


def opt_command(
    file: File,
    more: MorePasses = None,
    passes: Passes = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run passes over a program and print it.

    Without a pass the program is parsed, verified and printed.
    """
    from trainc.passes.pipelines import run_text

    del quiet  # nothing is printed but the result
    text = sys.stdin.read() if file == "-" else _read(Path(file))
    names = [*(passes or []), *(more or [])]
    result = run_text(text, names)
    if as_json:
        output.emit_json({"passes": names, "program": result})
    else:
        output.emit_raw(result.encode())


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot read the program: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: expected a program as UTF-8 text, got other bytes") from error
