"""The closed set of primitive ops that trainc.passes lowers."""

from trainc.ir.primitives.barrier import barrier
from trainc.ir.primitives.constant import constant, fill
from trainc.ir.primitives.gather import gather, scatter_add
from trainc.ir.primitives.map import elementwise, map_, map_many
from trainc.ir.primitives.matmul import matmul
from trainc.ir.primitives.put_rows import put_rows
from trainc.ir.primitives.random_bits import random_bits
from trainc.ir.primitives.reduce import reduce_max, reduce_sum
from trainc.ir.primitives.shape import concat, pad_axis, reshape, slice_axis, split

__all__ = [
    "barrier",
    "concat",
    "constant",
    "elementwise",
    "fill",
    "gather",
    "map_",
    "map_many",
    "matmul",
    "pad_axis",
    "put_rows",
    "random_bits",
    "reduce_max",
    "reduce_sum",
    "reshape",
    "scatter_add",
    "slice_axis",
    "split",
]
