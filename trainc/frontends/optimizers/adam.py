"""Adam and AdamW."""

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from trainc.core import adam, adamw
from trainc.core.adamw import AdamWSettings
from trainc.frontends.arrays import Float32, require_not_negative
from trainc.frontends.optimizers.optimizer import LearningRates, Optimizer


class Adam(Optimizer):
    """Adam over float32 arrays of the caller, which it updates in place.

    Weight decay is coupled: it is added to the gradient and so passes through both moments. Everything is float32, the
    bias corrections too, with the fused multiply-adds of spec section 8.

    Args:
        params: One float32 array or several (NumPy, `array.array`, or anything with the buffer protocol or DLPack):
            writable, C-contiguous, not empty, separate.
        lr: Learning rate, at least 0.
        betas: Decay rates of the two moments, each in [0, 1).
        eps: Added to the root of the second moment; at least 0.
        weight_decay: Weight decay, at least 0.
        lr_schedule: An object with a method lr_at(t), counted from one, which sets `lr` before each step.
        accumulation_steps: Entries that `step_accumulated` takes; a power of two.
        maximize: Go up the gradient; the caller's arrays keep their signs.
        resident: None or True keep the device's handles on the arrays between steps, False does not.
        **kwargs: None is known.

    Attributes:
        params: Views of the parameters.
        t: Steps taken.
        lr_schedule: As given.
        accumulation_steps: As given.
        maximize: As given.
        resident: As given.

    Raises:
        ConfigError: A number is impossible. A ValueError.
        DtypeError: A parameter is no array of float32. A TypeError.
        ShapeError: A parameter is empty or not C-contiguous. A ValueError.
        UsageError: A parameter is read-only, two share memory, or there is none. A ValueError.
        ArgumentTypeError: A keyword that does not exist (`amsgrad`, `foreach`, `fused`, ...), parameter groups, a
            schedule without lr_at, or a flag that is no bool. A TypeError.
    """

    _rule = "adam"
    _buffers = ("m", "v")

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        lr_schedule: LearningRates | None = None,
        accumulation_steps: int = 1,
        maximize: bool = False,
        resident: bool | None = None,
        **kwargs: Any,
    ) -> None:
        self._settings = AdamWSettings(betas=betas, eps=eps, weight_decay=weight_decay)
        super().__init__(params, lr, lr_schedule, accumulation_steps, maximize, resident, kwargs)

    @property
    def betas(self) -> tuple[float, float]:
        """Decay rates of the two moments, rounded to float32."""
        return self._settings.betas

    @property
    def eps(self) -> float:
        """What is added to the root of the second moment, rounded to float32."""
        return self._settings.eps

    @property
    def weight_decay(self) -> float:
        """Weight decay, rounded to float32."""
        return self._settings.weight_decay

    @property
    def exp_avg(self) -> Float32:
        """First moments, flat over all parameters: a copy."""
        return self._flat("m")

    @property
    def exp_avg_sq(self) -> Float32:
        """Second moments, flat over all parameters: a copy."""
        return self._flat("v")

    def _scalars(self, index: int, lr: float) -> Mapping[str, Any]:
        return adam.coefficients(self._settings, lr, self.t + 1, -1.0 if self.maximize else 1.0)

    def _state(self) -> dict[str, npt.NDArray[Any]]:
        return {"exp_avg": self.exp_avg, "exp_avg_sq": self.exp_avg_sq}

    def _load(self, state: Mapping[str, Any]) -> None:
        first, second = (self._flat_input(name, state[name]) for name in ("exp_avg", "exp_avg_sq"))
        require_not_negative("exp_avg_sq", second)
        self._write_flat("m", first)
        self._write_flat("v", second)


class AdamW(Adam):
    """Adam with decoupled weight decay, over float32 arrays of the caller, which it updates in place.

    A parameter is multiplied by 1 - lr * weight_decay; the decay does not pass through the moments. Everything else is
    as in `Adam`.

    Args:
        params: One float32 array or several, as for `Adam`.
        lr: Learning rate, at least 0.
        betas: Decay rates of the two moments, each in [0, 1).
        eps: Added to the root of the second moment; at least 0.
        weight_decay: Weight decay, at least 0.
        lr_schedule: An object with a method lr_at(t), counted from one, which sets `lr` before each step.
        accumulation_steps: Entries that `step_accumulated` takes; a power of two.
        maximize: Go up the gradient; the caller's arrays keep their signs.
        resident: None or True keep the device's handles on the arrays between steps, False does not.
        **kwargs: None is known.

    Raises:
        TraincError: As for `Adam`.
    """

    _rule = "adamw"

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        lr_schedule: LearningRates | None = None,
        accumulation_steps: int = 1,
        maximize: bool = False,
        resident: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, lr_schedule, accumulation_steps, maximize, resident, **kwargs
        )

    def _scalars(self, index: int, lr: float) -> Mapping[str, Any]:
        return adamw.coefficients(self._settings, lr, self.t + 1, -1.0 if self.maximize else 1.0)
