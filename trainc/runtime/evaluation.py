"""Loss on data that is not trained on."""

from dataclasses import dataclass

from trainc.core.errors import ArtifactError, DataError, NumericsError
from trainc.runtime.buffers import FlatBuffer
from trainc.runtime.data import Windows
from trainc.runtime.driver import Driver
from trainc.runtime.losses import total_loss
from trainc.runtime.program import Program


@dataclass(frozen=True)
class Evaluation:
    """A loss over data.

    Attributes:
        loss: Mean loss per target, in nats.
        targets: Number of targets.
    """

    loss: float
    targets: int


def evaluate(
    program: Program, driver: Driver, params: FlatBuffer, windows: Windows, max_windows: int | None = None
) -> Evaluation:
    """Mean loss over windows, in their order and without dropout.

    Args:
        program: The artifact on a device.
        driver: The driver of the artifact's kind.
        params: The weights.
        windows: The data.
        max_windows: Take only this many, from the start.

    Raises:
        ArtifactError: The artifact was compiled by another version.
        DataError: There is no target.
        NumericsError: The loss is not finite.
    """
    count = len(windows) if max_windows is None else min(max_windows, len(windows))
    total, targets = 0.0, 0
    for start in range(0, count, driver.rows):
        rows = range(start, min(start + driver.rows, count))
        bound = driver.bind_evaluation(driver.inputs(windows.read(rows)))
        for call in bound.calls:
            results = program.call("eval_loss", {"params": params, **call})
            if "nll" not in results:
                raise ArtifactError(f"entry 'eval_loss' should give 'nll', it gives {list(results)}; compile it again")
            total += total_loss(results["nll"])
        targets += bound.targets
    if targets == 0:
        raise DataError("there is no target to evaluate on; give more data")
    loss = total / targets
    if loss - loss != 0.0:
        raise NumericsError(f"the loss on {targets} targets is {loss}: the weights hold values that are not finite")
    return Evaluation(loss, targets)
