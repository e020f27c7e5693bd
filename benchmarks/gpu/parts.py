"""The parts of the check: each gives a dict for the report, with `problem` saying why it is not whole ("" if it is)."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.child import Said, run_part
from benchmarks.gpu.job import Job, identity
from benchmarks.training import CHECKED_STEPS, LOSS_TOLERANCE
from trainc.core.errors import ArtifactError

EARLY_STEPS = 50
TOLERANCES = {"f32": (1e-4, 1e-2), "bf16": (5e-3, 2e-2)}
"""Relative differences from a float32 curve that are allowed in the first `EARLY_STEPS` and after them, by precision.

Two float32 trainings drift apart as rounding is amplified from step to step; a wrong kernel shows in the first steps.
In bf16 they are apart from the first step on: those of samba_tiny on a CPU by up to 1.3e-4 and 2.7e-3.
"""

WARM_UP_STEPS, TIMED_STEPS = 10, 50
_TURN = 10

Part = dict[str, Any]


@dataclass(frozen=True)
class Form:
    """A way to run torch's model.

    Attributes:
        compiled: Through `torch.compile`.
        narrow: Under autocast to bfloat16.
        limit_s: Seconds it may take.
    """

    compiled: bool
    narrow: bool
    limit_s: float


TORCH_FORMS = {
    "torch eager f32": Form(False, False, 30),
    "torch.compile f32": Form(True, False, 70),
    "torch eager bf16": Form(False, True, 30),
    "torch.compile bf16": Form(True, True, 70),
}


def verify(job: Job, device: str, limit_s: float) -> Part:
    """The artifact's self-test on a device."""
    said = run_part("benchmarks.gpu.verify", (job.curve["artifact"], device), limit_s=limit_s)
    told: Part = {key: value for answer in said.answers for key, value in answer.items()}
    outputs = told.pop("outputs", [])
    last = told.pop("running", None)
    problem = f"{said.problem}, after: {last}" if said.problem and last else said.problem
    wrong = [output for output in outputs if not output["ok"]]
    return {**told, "problem": problem, "time_s": said.time_s, "wrong": wrong, "outputs": outputs}


def train(job: Job, device: str, steps: int, limit_s: float) -> Part:
    """Training steps on a device, over all batches; as many as there was time for."""
    said = _steps("device_step", {**job.curve, "device": device}, _turns(steps), limit_s)
    return {"problem": said.problem, "time_s": said.time_s, "losses": _all(said, "losses")}


def read_curve(path: Path, job: Job) -> Part:
    """Losses that were recorded on another machine.

    Raises:
        ArtifactError: They are of another model, batch or optimizer.
    """
    try:
        curve = json.loads(path.read_text(encoding="utf-8"))
        losses, recorded = [float(loss) for loss in curve["losses"]], curve["identity"]
    except (ValueError, KeyError, TypeError) as error:
        raise ArtifactError(f"{path} is no curve of gpu_check --record: {error}") from error
    if recorded != json.loads(json.dumps(identity(job.manifest))):
        raise ArtifactError(f"{path} was recorded with another model, batch or optimizer; record it anew")
    return {"problem": "", "time_s": 0.0, "losses": losses, "from": path.name, "processor": curve.get("processor")}


def compare_losses(device: Sequence[float], cpu: Sequence[float], precision: str) -> Part:
    """How far the losses of a device are from those of the CPU, step by step.

    Args:
        device: The losses of a device.
        cpu: Those of the CPU.
        precision: In which the device computes.
    """
    apart = [abs(one - other) / abs(other) for one, other in zip(device, cpu, strict=False)]
    early, late = apart[:EARLY_STEPS], apart[EARLY_STEPS:]
    most_early, most_late = TOLERANCES[precision]
    return {
        "problem": "" if apart else "there is nothing to compare",
        "steps": len(apart),
        "largest_early": max(early, default=None),
        "largest_late": max(late, default=None),
        "tolerances": [most_early, most_late],
        "ok": bool(apart) and max(early) <= most_early and max(late, default=0.0) <= most_late,
        "fell": bool(apart) and device[len(apart) - 1] < device[0],
    }


def time_trainc(job: Job, device: str, limit_s: float) -> Part:
    """The time of trainc's training step on one batch."""
    return _timed(_steps("device_step", {**job.timing, "device": device}, _TIMED_TURNS, limit_s), job.tokens)


def time_torch(job: Job, device: str, form: Form, limit_s: float, python: str) -> Part:
    """The time of torch's training step on the same batch from the same weights."""
    if job.torch_problem:
        return {"problem": job.torch_problem}
    given = {**job.torch, "device": device, "compiled": form.compiled, "narrow": form.narrow}
    return _timed(_steps("torch_step", given, _TIMED_TURNS, limit_s, python), job.tokens)


def against(trainc: Mapping[str, Any], torch: Mapping[str, Any]) -> Part:
    """Step time of trainc over torch's, and whether both computed the same in the first steps."""
    if trainc.get("median_s") is None or torch.get("median_s") is None:
        return {}
    first = [(trainc["first_losses"][at], torch["first_losses"][at]) for at in range(CHECKED_STEPS)]
    apart = max(abs(one - other) for one, other in first)
    return {
        "ratio_median": trainc["median_s"] / torch["median_s"],
        "ratio_min": trainc["min_s"] / torch["min_s"],
        "losses_apart": apart,
        "same_as_trainc": apart <= LOSS_TOLERANCE,
    }


def status(report: Mapping[str, Any]) -> Part:
    """What the whole check says: its exit status, and why that is not 0."""
    done = {name: part for name, part in report.items() if _is_part(part)}
    reasons = [f"{name}: {part['problem']}" for name, part in done.items() if part["problem"]]
    failed = [name for name, part in done.items() if part["problem"] and name not in TORCH_FORMS]
    wrong = [f"{name}: {one['entry']}, {one['output']}" for name, part in done.items() for one in part.get("wrong", ())]
    wrong += [
        f"{name}: they are too far from the CPU's"
        for name, part in done.items()
        if part.get("ok") is False and part["steps"]
    ]
    return {"exit": 6 if wrong else 5 if failed else 0, "wrong": wrong, "problems": reasons, "problem": ""}


def line(name: str, part: Mapping[str, Any]) -> str:
    """What a part found, in one line."""
    if part["problem"]:
        return f"{name}: {part['problem']}"
    if "outputs" in part:
        return f"{name}: {len(part['outputs'])} outputs, {len(part['wrong'])} wrong, {part['time_s']:.1f} s"
    if "ok" in part:
        early, late = (_shown(part[key], ".1e") for key in ("largest_early", "largest_late"))
        return f"{name}: {'ok' if part['ok'] else 'WRONG'}, largest differences {early} (first steps) and {late}"
    if "losses" in part:
        return f"{name}: {len(part['losses'])} steps, loss {part['losses'][0]:.4f} to {part['losses'][-1]:.4f}"
    if "median_s" in part:
        ratio = f", trainc takes {part['ratio_median']:.3f} of it" if "ratio_median" in part else ""
        return f"{name}: {1e3 * part['median_s']:.2f} ms a step{ratio}"
    return f"{name}: exit {part['exit']}"


_TIMED_TURNS = (WARM_UP_STEPS, *(5,) * (TIMED_STEPS // 5))


def _turns(steps: int) -> tuple[int, ...]:
    """Steps cut into turns, after each of which the losses are told."""
    return (*(_TURN,) * (steps // _TURN), *((steps % _TURN,) if steps % _TURN else ()))


def _steps(
    contender: str, job: Mapping[str, Any], turns: Sequence[int], limit_s: float, python: str = sys.executable
) -> Said:
    questions = [dict(job), *({"steps": steps} for steps in turns)]
    return run_part(f"benchmarks.contenders.{contender}", (), questions, limit_s=limit_s, python=python)


def _all(said: Said, key: str) -> list[float]:
    """The numbers of all turns, one after the other; the first answer is about the contender itself."""
    return [value for answer in said.answers[1:] for value in answer[key]]


def _timed(said: Said, tokens: int) -> Part:
    times_s, losses = _all(said, "times_s"), _all(said, "losses")
    counted = times_s[WARM_UP_STEPS:]
    found: Part = {
        "problem": said.problem,
        "time_s": said.time_s,
        "facts": dict(said.answers[0]) if said.answers else {},
    }
    found |= {"first_losses": losses[:CHECKED_STEPS], "steps": len(counted), "median_s": None}
    if counted:
        median_s = statistics.median(counted)
        found |= {"median_s": median_s, "min_s": min(counted), "first_step_s": times_s[0]}
        found |= {"tokens_per_s": tokens / median_s}
    return found


def _shown(value: float | None, form: str) -> str:
    return "none" if value is None else format(value, form)


def _is_part(value: Any) -> bool:
    return isinstance(value, dict) and "problem" in value
