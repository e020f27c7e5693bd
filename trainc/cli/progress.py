"""Progress on standard error: a live bar on a terminal, plain lines anywhere else, nothing with --quiet."""

import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

PLAIN_INTERVAL_S = 5.0
"""Seconds between two lines of progress where there is no terminal."""

_SHOWN = (
    ("train/loss", "loss", "{:.4f}"),
    ("train/grad_norm", "norm", "{:.3f}"),
    ("train/lr", "lr", "{:.2e}"),
    ("perf/tokens_per_s", "tokens/s", "{:,.0f}"),
)


def summary(metrics: Mapping[str, object]) -> str:
    """The few metrics a person follows, on one line."""
    shown = []
    for key, label, form in _SHOWN:
        value = metrics.get(key)
        if isinstance(value, int | float):
            shown.append(f"{label} {form.format(value)}")
    return "  ".join(shown)


class Reporter:
    """Tells a person what goes on; use it as a context manager.

    Rich decides what a terminal can show (`NO_COLOR`, `TERM=dumb`); a pipe or a file gets plain lines.

    Attributes:
        quiet: Nothing is shown.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self._console = Console(file=sys.stderr, highlight=False, soft_wrap=True, markup=False, emoji=False)
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._last_line_s = float("-inf")

    @property
    def live(self) -> bool:
        """Whether there is a terminal that can redraw a line."""
        return self._console.is_terminal and not self._console.is_dumb_terminal and not self.quiet

    def note(self, text: str) -> None:
        """Prints one line."""
        if not self.quiet:
            self._console.print(text)

    def begin(self, title: str, total_steps: int, done_steps: int = 0) -> None:
        """Starts a bar of `total_steps`, of which `done_steps` were done before."""
        self.end()
        if not self.live:
            self.note(f"{title}: {total_steps - done_steps} steps")
            return
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[summary]}", markup=False),
        )
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._task = self._bar.add_task(title, total=total_steps, completed=done_steps, summary="")
        self._bar.start()

    def step(self, step: int, metrics: Mapping[str, object]) -> None:
        """Shows that step number `step` is done, with its metrics."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=step, summary=summary(metrics))
            return
        now_s = time.monotonic()
        if now_s - self._last_line_s >= PLAIN_INTERVAL_S:
            self._last_line_s = now_s
            self.note(f"step {step}  {summary(metrics)}")

    def end(self) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.stop()
        self._bar = self._task = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
