"""The optimizers' kernels: one for each update rule, compiled when it is first needed on a machine."""

from typing import TYPE_CHECKING

from trainc.frontends.kernels import load_kernel
from trainc.runtime.program import Program

if TYPE_CHECKING:
    from trainc.frontends.tracing.artifact import Source


def rule_kernel(rule: str, numeric_mode: str) -> Program:
    """Returns the kernel of an update rule: "sgd", "sgd_momentum", "adam" or "adamw"."""

    def source() -> "Source":
        from trainc.frontends.optimizers.tracing.rules import rule_source

        return rule_source(rule, numeric_mode)

    return load_kernel(rule, {"numeric_mode": numeric_mode}, source)


def norms_kernel(numeric_mode: str) -> Program:
    """Returns the kernel of the partial sums of gradient norms."""

    def source() -> "Source":
        from trainc.frontends.optimizers.tracing.rules import norms_source

        return norms_source(numeric_mode)

    return load_kernel("norms", {"numeric_mode": numeric_mode}, source)
