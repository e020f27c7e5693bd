"""SGD."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from trainc.core import sgd
from trainc.core.sgd import SGDSettings
from trainc.frontends.arrays import Float32, Int32, int32_input, require_shape
from trainc.frontends.optimizers.optimizer import LearningRates, Optimizer


class SGD(Optimizer):
    """Stochastic gradient descent over float32 arrays of the caller, which it updates in place.

    Weight decay is coupled: it is added to the gradient and so passes through the momentum buffer. Everything is
    float32, with the fused multiply-adds of spec section 8.

    Args:
        params: One float32 array or several (NumPy, `array.array`, or anything with the buffer protocol or DLPack):
            writable, C-contiguous, not empty, separate.
        lr: Learning rate, at least 0.
        momentum: Momentum factor, at least 0.
        dampening: Share of the gradient kept out of the momentum buffer after its first step; at least 0.
        weight_decay: Weight decay, at least 0.
        nesterov: Nesterov momentum; needs momentum above 0 and no dampening.
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
        ConfigError: A number is impossible, or nesterov does not fit. A ValueError.
        DtypeError: A parameter is no array of float32. A TypeError.
        ShapeError: A parameter is empty or not C-contiguous. A ValueError.
        UsageError: A parameter is read-only, two share memory, or there is none. A ValueError.
        ArgumentTypeError: A keyword that does not exist (`foreach`, `fused`, ...), parameter groups, a schedule
            without lr_at, or a flag that is no bool. A TypeError.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        lr_schedule: LearningRates | None = None,
        accumulation_steps: int = 1,
        maximize: bool = False,
        resident: bool | None = None,
        **kwargs: Any,
    ) -> None:
        self._settings = SGDSettings(
            momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov
        )
        self._rule, self._buffers = ("sgd_momentum", ("b",)) if self._settings.momentum else ("sgd", ())
        super().__init__(params, lr, lr_schedule, accumulation_steps, maximize, resident, kwargs)
        self._initialized = np.zeros(len(self.params), np.int32)

    @property
    def momentum(self) -> float:
        """Momentum factor, rounded to float32."""
        return self._settings.momentum

    @property
    def dampening(self) -> float:
        """Share of the gradient kept out of the momentum buffer, rounded to float32."""
        return self._settings.dampening

    @property
    def weight_decay(self) -> float:
        """Weight decay, rounded to float32."""
        return self._settings.weight_decay

    @property
    def nesterov(self) -> bool:
        """Whether the momentum is Nesterov's."""
        return self._settings.nesterov

    @property
    def momentum_buffer(self) -> Float32 | None:
        """Momentum buffers, flat over all parameters: a copy; None without momentum."""
        return self._flat("b") if self._buffers else None

    @property
    def buf_initialized(self) -> Int32:
        """For each parameter 1 once its momentum buffer has been written, else 0; a copy. Always 0 without momentum."""
        return self._initialized.copy()

    def _scalars(self, index: int, lr: float) -> Mapping[str, Any]:
        sign = -1.0 if self.maximize else 1.0
        return sgd.coefficients(self._settings, lr, sign=sign, first=not self._initialized[index])

    def _taken(self) -> None:
        super()._taken()
        if self._buffers:
            self._initialized[...] = 1

    def _state(self) -> dict[str, npt.NDArray[Any]]:
        if not self._buffers:
            return {}
        return {"momentum_buffer": self._flat("b"), "buf_initialized": self.buf_initialized}

    def _load(self, state: Mapping[str, Any]) -> None:
        if not self._buffers:
            return
        buffer = self._flat_input("momentum_buffer", state["momentum_buffer"])
        flags = int32_input("buf_initialized", state["buf_initialized"], low=0, high=2)
        require_shape("buf_initialized", flags, (len(self.params),), "(params,)")
        self._write_flat("b", buffer)
        self._initialized[...] = flags
