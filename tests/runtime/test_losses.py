"""Losses are added in float64, and an entry of another version is named."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from trainc.core.errors import ArtifactError
from trainc.runtime.evaluation import evaluate
from trainc.runtime.losses import total_loss


def test_a_long_sum_keeps_its_digits() -> None:
    parts = np.full(2**16, 0.1, np.float32)
    parts[0] = 2.0**24
    exact = 2.0**24 + (2**16 - 1) * float(np.float32(0.1))
    assert total_loss(parts) == pytest.approx(exact, rel=1e-12)  # float64 rounding of 2**16 additions
    assert total_loss(np.float32(3.5) + np.zeros((), np.float32)) == 3.5


def test_an_infinite_part_is_not_hidden() -> None:
    assert total_loss(np.array([np.inf, 1.0], np.float32)) == np.inf
    assert np.isnan(total_loss(np.array([np.inf, -np.inf], np.float32)))


def test_an_evaluation_entry_of_another_version_is_named() -> None:
    bound = SimpleNamespace(calls=[{}], targets=1)
    driver: Any = SimpleNamespace(rows=1, inputs=lambda windows: {}, bind_evaluation=lambda inputs: bound)
    program: Any = SimpleNamespace(call=lambda name, arguments: {"nll_sum": np.float32(1.0)})

    class OneWindow:
        def __len__(self) -> int:
            return 1

        def read(self, rows: range) -> np.ndarray[Any, Any]:
            return np.zeros((1, 2), np.uint8)

    windows: Any = OneWindow()
    with pytest.raises(ArtifactError, match=r"eval_loss.*nll_sum"):
        evaluate(program, driver, SimpleNamespace(), windows)  # type: ignore[arg-type]
