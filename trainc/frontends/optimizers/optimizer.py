"""What all optimizers share: the caller's arrays, learning rates, clipping, accumulation and the order of a step."""

import threading
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from trainc.core import accumulation, checks
from trainc.core.errors import ArgumentTypeError, ConfigError, ShapeError, UsageError
from trainc.core.modes import DEFAULT_MODE
from trainc.frontends.arrays import Float32, float32_in_place, float32_input, listed, require_separate
from trainc.frontends.optimizers.gradients import accumulate_grads, largest_norm, scale_to_norm
from trainc.frontends.optimizers.kernels import rule_kernel
from trainc.frontends.optimizers.memory import Memory, run_rule, zeros_beside
from trainc.frontends.optimizers.norms import global_norm

_TORCH_ONLY = ("amsgrad", "foreach", "fused", "capturable", "differentiable")


class LearningRates(Protocol):
    """A schedule: the learning rate of each step, counted from one."""

    def lr_at(self, t: int, /) -> float:
        """The learning rate of step `t`."""


class Optimizer:
    """Base of the optimizers; the subclasses document the arguments.

    Calls from several threads take turns.
    """

    _rule: str
    _buffers: tuple[str, ...]

    def __init__(
        self,
        params: Any,
        lr: float,
        lr_schedule: LearningRates | None,
        accumulation_steps: int,
        maximize: bool,
        resident: bool | None,
        kwargs: Mapping[str, Any],
    ) -> None:
        self._lock = threading.RLock()
        self.lr = lr
        self._refuse(kwargs)
        if lr_schedule is not None and not callable(getattr(lr_schedule, "lr_at", None)):
            raise ArgumentTypeError(f"lr_schedule must have a method lr_at(t), got {type(lr_schedule).__name__}")
        if not isinstance(maximize, bool):
            raise ArgumentTypeError(f"maximize must be True or False, got {maximize!r}")
        if resident is not None and not isinstance(resident, bool):
            raise ArgumentTypeError(f"resident must be None, True or False, got {resident!r}")
        self.lr_schedule, self.maximize, self.resident = lr_schedule, maximize, resident
        self.accumulation_steps = checks.integer("accumulation_steps", accumulation_steps, 1)
        if not accumulation.is_power_of_two(self.accumulation_steps):
            raise ConfigError(f"accumulation_steps must be a power of two, got {accumulation_steps}")
        self._names, items = listed("params", params)
        if not items:
            raise UsageError("params must hold at least one array, got none")
        self.params = [float32_in_place(name, item) for name, item in zip(self._names, items, strict=True)]
        require_separate(self._names, self.params)
        self.t = 0
        keep = resident is not False
        self._memories: list[dict[str, Memory]] = [
            {
                "p": Memory(p, keep=keep),
                **{name: Memory(zeros_beside(p), keep=keep) for name in self._buffers},
            }
            for p in self.params
        ]

    @property
    def lr(self) -> float:
        """The learning rate: that of the next step, or with a schedule that of the last one."""
        return self._lr

    @lr.setter
    def lr(self, value: float) -> None:
        checks.float32_at_least_0("lr", value)
        self._lr = float(value)

    def step(self, grads: Any, max_norm: float | None = None) -> float | None:
        """Takes one step; it is taken whole, or an error is raised and nothing is changed.

        Args:
            grads: One float32 array for each parameter, in their order and shapes. They are not changed unless they
                are clipped, and may be read-only then.
            max_norm: Largest global norm of the gradients, above 0: they are scaled in place first, as by
                `clip_grad_norm_`. None does not clip.

        Returns:
            The global norm before clipping; None without `max_norm`.

        Raises:
            NotFiniteError: With `max_norm`, a gradient is not finite; the message names the first. A ValueError.
            ConfigError: `max_norm` or the schedule's rate is impossible.
            DtypeError: A gradient is no array of float32.
            ShapeError: A gradient has another shape than its parameter, or is not C-contiguous.
            UsageError: Another number of gradients than parameters, gradients that share memory with each other or
                with a parameter, or ones that are to be clipped and are read-only.
        """
        limit = None if max_norm is None else largest_norm(max_norm)
        names, arrays = self._gradients(grads, writable=limit is not None)
        with self._lock:
            lr = self._next_lr()
            program = rule_kernel(self._rule, DEFAULT_MODE)
            norm = None
            if limit is not None:
                norm = global_norm(names, arrays)
                scale_to_norm(arrays, norm, limit)
            for index, array in enumerate(arrays):
                memories = {**self._memories[index], "g": Memory(array)}
                run_rule(program, self._rule, memories, ("p", *self._buffers), self._scalars(index, lr))
            self._taken()
            self._lr = lr
        return norm

    def step_accumulated(self, microbatch_grads: Any, tokens: int | None) -> None:
        """Adds the gradients of microbatches as `accumulate_grads` does and takes one step with the sum.

        Args:
            microbatch_grads: `accumulation_steps` entries, each what `step` takes.
            tokens: Tokens of the whole step, or None not to check the split.

        Raises:
            UsageError: Another number of entries, or the split is not aligned; or what `step` raises. Nothing was
                changed.
        """
        _, entries = listed("microbatch_grads", microbatch_grads)
        if len(entries) != self.accumulation_steps:
            raise UsageError(
                f"microbatch_grads must have accumulation_steps = {self.accumulation_steps} entries, got {len(entries)}"
            )
        self.step(accumulate_grads(entries, tokens))

    def zero_grad(self, grads: Any) -> None:
        """Writes +0.0 into gradients.

        Args:
            grads: One writable float32 array for each parameter, in their order and shapes.

        Raises:
            DtypeError: A gradient is no array of float32.
            ShapeError: A gradient has another shape than its parameter, or is not C-contiguous.
            UsageError: A gradient is read-only or shares memory, or their number is wrong.
        """
        for array in self._gradients(grads, writable=True)[1]:
            array.fill(0.0)

    def state_dict(self) -> dict[str, Any]:
        """Returns the step count and the optimizer state, in new arrays that are flat over all parameters."""
        with self._lock:
            return {"kind": type(self).__name__, "t": self.t, **self._state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores a state made by `state_dict`; the learning rate and the other settings stay.

        Args:
            state: `kind`, the optimizer's name; `t`; and the arrays, flat over all parameters.

        Raises:
            UsageError: The state is of another optimizer, or has other keys, or a value is impossible. Nothing was
                changed.
            ShapeError: The state is of parameters of another size.
            DtypeError: An array is of another type.
        """
        wanted = self.state_dict()
        if not isinstance(state, Mapping) or set(state) != set(wanted):
            got = sorted(map(str, state)) if isinstance(state, Mapping) else type(state).__name__
            raise UsageError(f"the state of {wanted['kind']} has the keys {sorted(wanted)}, got {got}")
        if not isinstance(state["kind"], str) or state["kind"] != wanted["kind"]:
            raise UsageError(f"the state must be of {wanted['kind']}, got that of {state['kind']!r}")
        t = checks.integer("t", state["t"], 0)
        with self._lock:
            self._load({name: state[name] for name in self._state()})
            self.t = t

    def _refuse(self, kwargs: Mapping[str, Any]) -> None:
        for name in kwargs:
            reason = "is not supported" if name in _TORCH_ONLY else "does not exist"
            raise ArgumentTypeError(f"{type(self).__name__}: the argument {name} {reason}; leave it out")

    def _next_lr(self) -> float:
        if self.lr_schedule is None:
            return self._lr
        return checks.float32_at_least_0("lr_schedule.lr_at(t)", self.lr_schedule.lr_at(self.t + 1))

    def _gradients(self, grads: Any, *, writable: bool) -> tuple[list[str], list[Float32]]:
        names, items = listed("grads", grads)
        if len(items) != len(self.params):
            raise UsageError(f"grads must hold one array for each of the {len(self.params)} params, got {len(items)}")
        take = float32_in_place if writable else float32_input
        arrays = [take(name, item) for name, item in zip(names, items, strict=True)]
        for name, array, owner, param in zip(names, arrays, self._names, self.params, strict=True):
            if array.shape != param.shape:
                raise ShapeError(f"{name} must have the shape of {owner}, {param.shape}, got {array.shape}")
        require_separate([*self._names, *names], [*self.params, *arrays])
        return names, arrays

    def _flat(self, buffer: str) -> Float32:
        """A copy of one of the state's buffers, flat over all parameters."""
        return np.concatenate([memories[buffer].flat for memories in self._memories])

    def _flat_input(self, name: str, value: Any) -> Float32:
        """A buffer of a state that is loaded."""
        array = float32_input(name, value).reshape(-1)
        size = sum(param.size for param in self.params)
        if array.size != size:
            raise ShapeError(f"{name} must have one element for each of the {size} parameters, got {array.size}")
        return array

    def _write_flat(self, buffer: str, values: Float32) -> None:
        start = 0
        for memories in self._memories:
            flat = memories[buffer].flat
            flat[...] = values[start : start + flat.size]
            start += flat.size

    def _taken(self) -> None:
        """Count a step that was taken."""
        self.t += 1

    def _scalars(self, index: int, lr: float) -> Mapping[str, Any]:
        """The scalars of the next step of one parameter."""
        raise NotImplementedError

    def _state(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays of the state by name, as copies."""
        raise NotImplementedError

    def _load(self, state: Mapping[str, Any]) -> None:
        """Write the arrays of a state, after all of them were checked."""
        raise NotImplementedError
