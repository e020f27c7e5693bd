"""What the comparisons share: their command-line options, and how they end."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainc.core.errors import TraincError


class DisagreementError(Exception):
    """The contenders do not compute the same values."""


def new_parser(description: str, *, rounds: int = 6) -> argparse.ArgumentParser:
    """A parser with the options of every comparison.

    Args:
        description: For --help.
        rounds: Default of --rounds.
    """
    parser = argparse.ArgumentParser(description=description)
    help_rounds = f"rounds; each contender has one turn in each (default {rounds})"
    parser.add_argument("--rounds", type=int, default=rounds, help=help_rounds)
    parser.add_argument("--threads", type=int, default=2, help="threads of every contender (default 2)")
    help_peers = "interpreter that has what trainc is compared with, if not this one"
    parser.add_argument("--peer-python", default=sys.executable, help=help_peers)
    parser.add_argument("--out", type=Path, help="folder to write all figures (JSON) and the report (Markdown) to")
    return parser


def finish(
    name: str,
    compare: Callable[[], dict[str, Any]],
    as_markdown: Callable[[dict[str, Any]], str],
    out: Path | None,
    draw: Callable[[dict[str, Any], Path], None] | None = None,
) -> int:
    """Runs a comparison and prints its report, or why there is none.

    Args:
        name: Of the benchmark, for errors and for the files.
        compare: Checks and measures.
        as_markdown: The report as Markdown.
        out: Folder for NAME.json, NAME.md and, if there is something to draw, NAME.png.
        draw: Draws the report into a file.

    Returns:
        The exit status: 6 if the contenders disagree, that of the `trainc` command for its errors, otherwise 1.
    """
    try:
        report = compare()
    except DisagreementError as error:
        print(f"{name}: no figures: {error}", file=sys.stderr)
        return 6
    except (RuntimeError, TraincError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return getattr(error, "exit_code", 1)
    text = as_markdown(report)
    print(text)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        (out / f"{name}.md").write_text(text + "\n", encoding="utf-8")
        if draw is not None:
            draw(report, out / f"{name}.png")
    return 0
