"""The plot of benchmarks/samba_cpu.py: step times as bars, one panel a model. Needs the `plot` extra."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.machine import machine_line

OURS, THEIRS = "tab:blue", "0.7"


def draw(report: dict[str, Any], file: Path) -> None:
    """Draws median step times as a PNG, with a mark at the minimum.

    Args:
        report: What samba_cpu.compare returned.
        file: The picture to write.
    """
    models = report["models"]
    tallest = max(len(result["contenders"]) for result in models.values())
    figure = Figure(figsize=(7.0, len(models) * (0.3 * tallest + 0.8) + 0.4), layout="constrained")
    for axes, (name, result) in zip(figure.subplots(len(models), squeeze=False)[:, 0], models.items(), strict=True):
        contenders = result["contenders"]
        medians_ms, minima_ms = ([1e3 * row[kind] for row in contenders.values()] for kind in ("median_s", "min_s"))
        colors = [OURS if contender == report["subject"] else THEIRS for contender in contenders]
        bars = axes.barh(list(contenders), medians_ms, color=colors)
        axes.plot(minima_ms, list(contenders), "k|", markersize=10)
        axes.bar_label(bars, [f"{median:.{0 if median >= 100 else 1}f}" for median in medians_ms], padding=4)
        axes.margins(x=0.15)
        axes.invert_yaxis()
        axes.set_title(f"{name}: one training step, ms (bar: median, mark: minimum)", loc="left", fontsize="medium")
    figure.supxlabel(machine_line(report["machine"], report["threads"]), fontsize="small")
    figure.savefig(file, dpi=120, metadata={"Software": None})
