"""PTX: assembled by ptxas for the GPU it was made for, and for newer ones."""

from __future__ import annotations

import os
import re
from pathlib import Path

from benchmarks.offline import tools
from benchmarks.offline.finding import Finding
from trainc.compiler.targets import Target

CARDS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
"""Architectures, older ones first; PTX for one runs on it and on all that come later."""

_TARGET = re.compile(r"^\.target\s+(\w+)", re.MULTILINE)
_MATRIX = re.compile(r"\bmma\.sync\.\S*\.f32\.bf16\.bf16\.f32\b")
_ASSEMBLED = re.compile(r"Compiling entry function '([^']+)' for")


def check(path: Path, target: Target) -> Finding:
    """Check one file of PTX."""
    text = path.read_text(encoding="utf-8")
    made_for = _TARGET.search(text)
    if made_for is None or made_for[1] != target.arch:
        got = made_for[1] if made_for else "no .target"
        return Finding(frozenset(), (f"it should be for {target.arch}, but says {got}",))
    kernels, problems = set[str](), []
    for card in CARDS[CARDS.index(target.arch) :]:
        status, out, err = tools.run(
            [tools.ptxas(), "--verbose", "--gpu-name", card, path, "--output-file", os.devnull]
        )
        if status:
            problems.append(f"ptxas for {card}: {tools.first_line(err + out)}")
        kernels.update(_ASSEMBLED.findall(err + out))
    return Finding(frozenset(kernels), tuple(problems), matrix=len(_MATRIX.findall(text)))
