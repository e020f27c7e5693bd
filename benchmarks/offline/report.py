"""The report of the offline checks, as Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.offline.ptx import CARDS
from benchmarks.offline.spirv import ENVIRONMENT
from trainc.core.modes import DEFAULT_PRECISION

_ABOUT = Path(__file__).with_name("about.md")


def as_markdown(report: dict[str, Any]) -> str:
    """The whole page, from what `offline_check` found."""
    rows = report["modules"]
    total, failed = sum(row["executables"] for row in rows), sum(bool(row["problems"]) for row in rows)
    lines = [
        _ABOUT.read_text(encoding="utf-8").format(environment=ENVIRONMENT, cards=", ".join(CARDS)),
        "## Results",
        "",
        f"`{report['config']}`, compiled by IREE {report['compiler']}: {total} executables in {len(rows)} modules, "
        f"{failed} modules with a problem. Compile times are those of one busy machine with few processors.",
        "",
        "| target | for | precision | module | executables | kernels | bf16 instructions | module KiB | compile s "
        "| result |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        *(_row(row) for row in rows),
        "",
        *_problems(rows),
        *_by_entry(rows),
        "## Tools",
        "",
        *(f"- `{name}`: {version}" for name, version in report["tools"].items()),
    ]
    return "\n".join(lines) + "\n"


def _row(row: dict[str, Any]) -> str:
    size = "-" if row["bytes"] is None else f"{row['bytes'] / 1024:.0f}"
    time_s = "-" if row["compile_s"] is None else f"{row['compile_s']:.1f}"
    notes = "".join(f"; {note}" for note in row["notes"])
    result = f"**{row['failed'] or 'module'} failed**" if row["problems"] else f"ok{notes}"
    cells = (
        row["target"],
        row["arch"],
        row["precision"],
        row["module"],
        row["executables"],
        sum(row["kernels"].values()),
        "not read" if row["matrix"] is None else row["matrix"] or "",
        size,
        time_s,
        result,
    )
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def _name(row: dict[str, Any]) -> str:
    """The target, with the precision if that is not the usual one."""
    return row["target"] if row["precision"] == DEFAULT_PRECISION else f"{row['target']} {row['precision']}"


def _problems(rows: list[dict[str, Any]]) -> list[str]:
    texts = [f"- {_name(row)}, {row['module']}: {text}" for row in rows for text in row["problems"]]
    return ["## Problems", "", *(" ".join(text.split())[:400] for text in texts), ""] if texts else []


def _by_entry(rows: list[dict[str, Any]]) -> list[str]:
    """How many kernels of each entry were checked for each target."""
    counts: dict[str, dict[str, int]] = {}
    for row in rows:
        counts.setdefault(_name(row), {}).update(row["kernels"])
    entries = sorted({entry for of_target in counts.values() for entry in of_target})
    return [
        "## Kernels by entry",
        "",
        "A kernel that several entries share counts for the first of them.",
        "",
        f"| target | {' | '.join(entries)} |",
        f"| --- |{' --- |' * len(entries)}",
        *(
            f"| {target} | {' | '.join(str(of_target.get(entry, 0)) for entry in entries)} |"
            for target, of_target in counts.items()
        ),
        "",
    ]
