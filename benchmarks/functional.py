"""Time of the layer and loss functions on the CPU: trainc against eager PyTorch, as ratios measured in one run.

    python benchmarks/functional.py [--only TITLE] [--peer-python PYTHON] [--out FOLDER]

Every case is a loss or layer with its gradients, on NumPy arrays in and out for trainc and on tensors for PyTorch.
Nothing is reported unless the losses agree: the exit status is 6 if they do not, and 1 for other failures.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # so that it also runs as a plain script

from benchmarks import pairs

CASES = {
    "cross_entropy 2048 x 8192": {"function": "cross_entropy", "shape": [2048, 8192], "steps": 10},
    "rms_norm 2048 x 512": {"function": "rms_norm", "shape": [2048, 512], "steps": 30},
    "linear 2048 x 512 x 512": {"function": "linear", "shape": [2048, 512, 512], "steps": 20},
}
# Answers are losses around 10 or means of gradients; the longest float32 sums in them have 8192 terms.
TOLERANCE = 2e-5

if __name__ == "__main__":
    sys.exit(pairs.run("functional", __doc__.partition("\n")[0], CASES, TOLERANCE))
