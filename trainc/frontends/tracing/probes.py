"""The module `selftest` of an artifact: one small entry for each kind of dispatch that its other entries are made of.

They say which op a device gets wrong where an entry of the model only says that something is. Each result is one case,
by size or form; sizes are odd where code for whole tiles or subgroups could differ.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from trainc.core.adamw import COEFFICIENT_NAMES
from trainc.core.selftest import Draw
from trainc.ir import scalar
from trainc.ir.ops.adamw import adamw
from trainc.ir.primitives import (
    barrier,
    constant,
    gather,
    map_,
    map_many,
    matmul,
    put_rows,
    random_bits,
    reduce_max,
    reduce_sum,
    reshape,
    scatter_add,
    slice_axis,
)
from trainc.ir.program import Argument, Program, Result, trace
from trainc.ir.scalar import Scalar
from trainc.ir.tensor import Aval, Tensor

PREFIX = "selftest_"

LENGTHS = (1, 63, 1024, 300_001)
"""Elements of the sums. Some devices end a loop after 65,535 rounds, in each of which four elements may be added."""

PROBE_DRAWS: Mapping[str, Draw] = {
    "a": Draw("uniform", -1, 1),
    "b": Draw("uniform", -1, 1),
    "c": Draw("uniform", -1, 1),
    "positive": Draw("uniform", 0.5, 1.5),
    "index": Draw("integers", 0, 131),
    "key": Draw("integers", 0, 2**31 - 1),
    "start": Draw("constant", 17),
}
"""How the arguments of these entries are drawn; `COMMON_DRAWS` has the optimizer's scalars."""

_PRODUCTS: Mapping[str, tuple[str, tuple[int, ...], tuple[int, ...]]] = {
    "nn": ("tk,kn->tn", (129, 96), (96, 64)),
    "tn": ("tn,tk->nk", (255, 64), (255, 96)),
    "vector": ("nk,k->n", (192, 64), (64,)),
    "few_rows": ("nk,kt->nt", (192, 64), (64, 3)),
    "batched_nn": ("xik,xkj->xij", (5, 64, 32), (5, 32, 48)),
    "batched_tn": ("xti,xtj->xij", (5, 64, 32), (5, 64, 48)),
}


def trace_probes() -> Program:
    """Trace the entries of the module `selftest`."""
    program = Program()
    for name, (function, arguments) in _PROBES.items():
        trace(program, PREFIX + name, function, arguments)
    return program


def _f32(name: str, *shape: int) -> Argument:
    return Argument(name, Aval(shape))


def _products(a: Tensor, b: Tensor) -> Sequence[Result]:
    results = []
    for name, (spec, left, right) in _PRODUCTS.items():
        operands = (barrier(_leading(x, shape)) for x, shape in ((a, left), (b, right)))
        results.append(Result(name, barrier(matmul(spec, *operands))))
    ones = constant(np.tril(np.ones((64, 64))))
    return [*results, Result("running_sums", matmul("ij,jm->im", ones, barrier(_leading(b, (64, 48)))))]


def _leading(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor's first elements, of as many as a shape has."""
    return reshape(slice_axis(x, 0, 0, int(np.prod(shape))), shape)


def _row_sums(positive: Tensor) -> Sequence[Result]:
    return _reduced(positive, "rn->r", lambda n: (3 if n < 2000 else 1, n), reduce_sum)


def _column_sums(positive: Tensor) -> Sequence[Result]:
    return _reduced(positive, "nc->c", lambda n: (n, 3 if n < 2000 else 1), reduce_sum)


def _maxima(a: Tensor) -> Sequence[Result]:
    rows = _reduced(a, "rn->r", lambda n: (3 if n < 2000 else 1, n), reduce_max)
    return [*rows, Result("columns", reduce_max("nc->c", barrier(_leading(a, (1024, 3)))))]


def _reduced(
    x: Tensor, spec: str, shape: Callable[[int], tuple[int, ...]], reduce: Callable[[str, Tensor], Tensor]
) -> list[Result]:
    return [Result(f"length_{n}", barrier(reduce(spec, barrier(_leading(x, shape(n)))))) for n in LENGTHS]


def _softmax(a: Tensor) -> Sequence[Result]:
    largest = reduce_max("rn->r", a)
    raised = map_("rn,r->rn", lambda x, top: scalar.exp(x - top), a, largest)
    return [Result("rows", map_("rn,r->rn", lambda x, total: x / total, raised, reduce_sum("rn->r", raised)))]


def _elementary(a: Tensor, positive: Tensor) -> Sequence[Result]:
    def functions(x: Scalar, p: Scalar) -> Sequence[Scalar]:
        wide = x * 20.0
        return (
            scalar.exp(wide),
            scalar.log(p),
            scalar.log1p(p),
            scalar.expm1(x),
            scalar.sqrt(p),
            scalar.rsqrt(p),
            scalar.sin(wide),
            scalar.cos(wide),
            scalar.tanh(x),
            scalar.sigmoid(wide),
        )

    names = ("exp", "log", "log1p", "expm1", "sqrt", "rsqrt", "sin", "cos", "tanh", "sigmoid")
    return [Result(*pair) for pair in zip(names, map_many("n,n->n", functions, a, positive), strict=True)]


def _transpose(a: Tensor) -> Sequence[Result]:
    return [Result("matrix", map_("ab->ba", lambda x: x, a))]


def _rows_by_index(a: Tensor, b: Tensor, index: Tensor) -> Sequence[Result]:
    return [Result("gather", gather(a, index)), Result("scatter_add", scatter_add(b, index, rows=131))]


def _put_rows(a: Tensor, b: Tensor, start: Tensor) -> Sequence[Result]:
    return [Result("axis_1", put_rows(a, b, start, axis=1))]


def _random_bits(key: Tensor, a: Tensor) -> Sequence[Result]:
    return [Result("words", random_bits(key, a))]


def _update(a: Tensor, b: Tensor, positive: Tensor, c: Tensor, *coefficients: Tensor) -> Sequence[Result]:
    new = adamw(a, b, positive, c, dict(zip(COEFFICIENT_NAMES, coefficients, strict=True)))
    return [Result(name, tensor) for name, tensor in zip(("p", "m", "v"), new, strict=True)]


_PROBES: Mapping[str, tuple[Callable[..., Sequence[Result]], Sequence[Argument]]] = {
    "products": (_products, [_f32("a", 255 * 64), _f32("b", 255 * 96)]),
    "row_sums": (_row_sums, [_f32("positive", LENGTHS[-1])]),
    "column_sums": (_column_sums, [_f32("positive", LENGTHS[-1])]),
    "maxima": (_maxima, [_f32("a", LENGTHS[-1])]),
    "softmax": (_softmax, [_f32("a", 65, 128)]),
    "elementary": (_elementary, [_f32("a", 4099), _f32("positive", 4099)]),
    "transpose": (_transpose, [_f32("a", 129, 67)]),
    "rows_by_index": (_rows_by_index, [_f32("a", 131, 48), _f32("b", 77, 48), Argument("index", Aval((77,), "i32"))]),
    "put_rows": (_put_rows, [_f32("a", 4, 64, 8), _f32("b", 4, 5, 8), Argument("start", Aval((), "i32"))]),
    "random_bits": (_random_bits, [Argument("key", Aval((5,), "i32")), _f32("a", 4099)]),
    "update": (
        _update,
        [
            *(_f32(name, 4160) for name in ("a", "b", "positive", "c")),
            *(Argument(name, Aval(())) for name in COEFFICIENT_NAMES),
        ],
    ),
}
"""Function and arguments of each entry."""
