"""The report of benchmarks/samba_cpu.py as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.machine import foreign_line, machine_line

HEADINGS = ("contender", "median ms", "min ms", "tokens/s", "compile s", "first step s", "peak RSS MB", "trainc / it")


def as_markdown(report: dict[str, Any]) -> str:
    """The report: the machine, the ratios of all models, and a table for each."""
    parts = [machine_line(report["machine"], report["threads"]), _ratios(report["models"])]
    parts += [_model(name, result, report["subject"]) for name, result in report["models"].items()]
    return "\n\n".join(parts)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = (" | ".join(cells) for cells in (headings, ["---"] * len(headings), *rows))
    return "\n".join(f"| {line} |" for line in lines)


def _ratios(models: dict[str, Any]) -> str:
    peers = list(dict.fromkeys(peer for result in models.values() for peer in result["ratios"]))
    rows = [
        [name, *(_ratio(result["ratios"][peer]) if peer in result["ratios"] else "" for peer in peers)]
        for name, result in models.items()
    ]
    return table(["model", *(f"vs {peer}" for peer in peers)], rows) + "\n\nStep time, trainc / peer: medians (minima)."


def _ratio(ratio: dict[str, float]) -> str:
    return f"{ratio['median']:.3f} ({ratio['min']:.3f})"


def _model(name: str, result: dict[str, Any], subject: str) -> str:
    model, batch, contenders = result["model"], result["batch"], result["contenders"]
    subject_s = contenders[subject]["median_s"]
    rows = [
        [
            f"{contender} ({row['facts']['version']})",
            f"{1e3 * row['median_s']:.1f}",
            f"{1e3 * row['min_s']:.1f}",
            f"{row['tokens_per_s']:,.0f}",
            "-" if row["compile_s"] is None else f"{row['compile_s']:.1f}",
            f"{row['first_step_s']:.1f}",
            f"{row['peak_rss_bytes'] / 1e6:,.0f}",
            f"{subject_s / row['median_s']:.3f}",
        ]
        for contender, row in contenders.items()
    ]
    apart = max(np.ptp(step) for step in zip(*result["losses"].values(), strict=True))
    losses = result["losses"][subject]
    return "\n".join(
        [
            f"### {name}: {', '.join(model['layers'])}; d_model {model['d_model']}, vocabulary {model['vocab']}, "
            f"{model['parameters'] / 1e6:.2f} M parameters, float32, batch {batch['rows']} x {batch['length']}",
            "",
            table(HEADINGS, rows),
            "",
            f"- medians and minima of {contenders[subject]['steps']} steps; {subject} compiles gradients and update in "
            f"{contenders[subject]['compile_s']:.1f} s, all entries in {result['compile_all_s']:.1f} s",
            f"- losses of the first {len(losses)} steps: {' '.join(f'{loss:.6f}' for loss in losses)}, "
            f"at most {apart:.1e} apart",
            f"- {foreign_line(result['foreign_share'])}",
        ]
    )
