"""The Mamba-3 mixer: everything between the input and the output projection of a block (spec section 2)."""

from trainc.ir.ops.mamba3.op import mamba3, mamba3_continue

__all__ = ["mamba3", "mamba3_continue"]
