"""`trainc verify`: run the self-test of an artifact on a device."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from trainc.cli import options, output
from trainc.cli.progress import PLAIN_INTERVAL_S, Reporter

if TYPE_CHECKING:
    from trainc.runtime.program import Program
    from trainc.runtime.verify import Compared


def verify_command(
    artifact: options.Artifact,
    device: options.Device = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run the self-test of an artifact: every entry and every kind of op, compared with float64 values.

    Exit code 6 if the device gives a wrong number.
    """
    from trainc.cli.loading import Model
    from trainc.runtime.verified import require_passed, verify_and_remember

    program = Model.open(artifact).program(device)
    with Reporter(quiet) as reporter:
        compared = verify_and_remember(program, teller(reporter))
    if as_json:
        output.emit_json(_result(program, compared))
    else:
        _show(program, compared)
    require_passed(program, compared)


def teller(reporter: Reporter) -> Callable[[str], None]:
    """What shows the lines of a verification: the first, and then one every few seconds."""
    last_s = float("-inf")

    def tell(line: str) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if now_s - last_s >= PLAIN_INTERVAL_S:
            last_s = now_s
            reporter.note(line)

    return tell


def _result(program: "Program", compared: "Sequence[Compared]") -> dict[str, Any]:
    return {
        "artifact": str(program.artifact.path),
        "device": program.device.name,
        "hardware": program.device.info.hardware,
        "target": program.target_name,
        "ok": all(one.ok for one in compared),
        "outputs": [
            {
                "entry": one.entry,
                "output": one.output,
                "error": one.error if one.error < float("inf") else None,  # JSON has no other numbers
                "tolerance": one.tolerance,
                "ok": one.ok,
            }
            for one in compared
        ],
    }


def _show(program: "Program", compared: "Sequence[Compared]") -> None:
    """Print every wrong output, and of an entry without one the output that is nearest to its tolerance."""
    rows = []
    for entry in dict.fromkeys(one.entry for one in compared):
        outputs = [one for one in compared if one.entry == entry]
        shown = [one for one in outputs if not one.ok] or [max(outputs, key=lambda one: one.badness)]
        for one in shown:
            verdict = "ok" if one.ok else "FAILED"
            numbers = f"{one.error:.1e}", f"{one.tolerance:.1e}"
            rows.append((entry, one.output, program.target_name, *numbers, verdict))
    output.emit_table(("ENTRY", "WORST OUTPUT", "TARGET", "ERROR", "TOLERANCE", "RESULT"), rows)
