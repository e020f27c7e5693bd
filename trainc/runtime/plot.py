"""A picture of a run's loss; needs the `plot` extra."""

from pathlib import Path

import numpy as np

from trainc.core.errors import DataError, UnsupportedError
from trainc.runtime.metrics import read_metrics

_MEAN_STEPS = 50


def plot_loss(metrics: Path | str, out: Path | str) -> Path:
    """Draw the training loss over the steps as a PNG.

    Args:
        metrics: A run's `metrics.jsonl`.
        out: The picture to write.

    Returns:
        The picture's path.

    Raises:
        UnsupportedError: matplotlib is not installed.
        DataError: The metrics are missing or hold no loss.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UnsupportedError(
            "a loss plot needs matplotlib, which is not installed; install trainc with the extra: trainc[plot]"
        ) from error
    rows = [row for row in read_metrics(metrics) if "train/loss" in row]
    if not rows:
        raise DataError(f"{metrics} holds no train/loss to plot")
    steps = np.array([row["step"] for row in rows])
    loss = np.array([row["train/loss"] for row in rows], np.float64)
    figure = Figure(figsize=(7.0, 4.0), layout="constrained")
    axes = figure.subplots()
    axes.plot(steps, loss, color="0.75", linewidth=0.8, label="each step")
    width = min(_MEAN_STEPS, max(1, len(loss) // 4))
    mean = np.convolve(loss, np.ones(width) / width, mode="valid")
    axes.plot(steps[width - 1 :], mean, color="tab:blue", label=f"mean of {width} steps")
    axes.set_xlabel("step")
    axes.set_ylabel("training loss (nats per token)")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(out, dpi=120, metadata={"Software": None})
    return Path(out)
