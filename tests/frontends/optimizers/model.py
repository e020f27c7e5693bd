"""The optimizers in NumPy float32, one rounding a line, written from spec section 8; and arrays at chosen addresses."""

from typing import Any

import numpy as np

from trainc.core.float32 import fma

F = np.float32
OFFSETS = (0, 4, 16, 60)


def at_offset(values: Any, offset: int) -> np.ndarray:
    """A float32 copy that starts `offset` bytes after a boundary of 64."""
    values = np.asarray(values, np.float32)
    raw = np.zeros(values.nbytes + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    out = raw[start : start + values.nbytes].view(np.float32).reshape(values.shape)
    out[...] = values
    assert out.ctypes.data % 64 == offset
    return out


def power(base: np.float32, exponent: int) -> np.float32:
    result = F(1)
    for bit in reversed(f"{exponent:b}"):
        result = result * base if bit == "1" else result
        base = base * base
    return result


class Model:
    """One optimizer over a list of arrays; `step` rewrites `params`."""

    def __init__(self, kind: str, params: list[np.ndarray], **options: Any) -> None:
        defaults = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "momentum": 0.0, "dampening": 0.0}
        self.kind, self.t = kind, 0
        self.o = {**defaults, "nesterov": False, "maximize": False, "weight_decay": 0.01 * (kind == "AdamW"), **options}
        self.params = [p.copy() for p in params]
        self.first = [np.zeros_like(p) for p in params]
        self.second = [np.zeros_like(p) for p in params]

    @np.errstate(all="ignore")
    def step(self, grads: list[np.ndarray]) -> None:
        self.t += 1
        for i, g in enumerate(grads):
            signed = -g if self.o["maximize"] else g
            (self._sgd if self.kind == "SGD" else self._adam)(i, signed)

    def _sgd(self, i: int, g: np.ndarray) -> None:
        o, p = self.o, self.params[i]
        if o["weight_decay"]:
            g = fma(F(o["weight_decay"]), p, g)
        if o["momentum"]:
            keep = F(1) - F(o["dampening"])
            buf = g if self.t == 1 else fma(keep, g, F(o["momentum"]) * self.first[i])
            self.first[i] = buf
            g = fma(F(o["momentum"]), buf, g) if o["nesterov"] else buf
        self.params[i] = fma(-F(o["lr"]), g, p)

    def _adam(self, i: int, g: np.ndarray) -> None:
        o, p = self.o, self.params[i]
        lr, wd, b1, b2 = F(o["lr"]), F(o["weight_decay"]), F(o["betas"][0]), F(o["betas"][1])
        if self.kind == "AdamW":
            p = p * (F(1) - lr * wd)
        elif wd:
            g = fma(wd, p, g)
        self.first[i] = fma(F(1) - b1, g, b1 * self.first[i])
        self.second[i] = fma(F(1) - b2, g * g, b2 * self.second[i])
        step, rb = lr / (F(1) - power(b1, self.t)), np.sqrt(F(1) - power(b2, self.t))
        denominator = np.sqrt(self.second[i]) / rb + F(o["eps"])
        self.params[i] = fma(-step, self.first[i] / denominator, p)
