"""The train dialect: tracing, differentiation, verification and interpretation of training programs."""

from trainc.ir import ops

__all__ = ["ops"]
