"""Scalar: one element inside the region of a `train.map`, and the functions on it.

Float functions are the arith and math ops of the same name; the interpreter evaluates them with NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainc.core.errors import DtypeError
from trainc.ir.mlir import arith, dtype_name, element_type, mlir

Number = float | int

_CMP_FLOAT = {"eq": 1, "gt": 2, "ge": 3, "lt": 4, "le": 5, "ne": 13}
_CMP_INT = {"eq": 0, "ne": 1, "lt": 2, "le": 3, "gt": 4, "ge": 5}


class Scalar:
    """An element of a tensor inside a map region, with the usual operators."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    @property
    def dtype(self) -> str:
        """Dtype name."""
        return dtype_name(self.value.type)

    @property
    def is_float(self) -> bool:
        """Whether the element is a floating-point number."""
        return self.dtype in ("f32", "f64", "bf16")

    def __add__(self, other: Scalar | Number) -> Scalar:
        return _binary("add", self, other)

    def __radd__(self, other: Number) -> Scalar:
        return _binary("add", _constant_like(other, self), self)

    def __sub__(self, other: Scalar | Number) -> Scalar:
        return _binary("sub", self, other)

    def __rsub__(self, other: Number) -> Scalar:
        return _binary("sub", _constant_like(other, self), self)

    def __mul__(self, other: Scalar | Number) -> Scalar:
        return _binary("mul", self, other)

    def __rmul__(self, other: Number) -> Scalar:
        return _binary("mul", _constant_like(other, self), self)

    def __truediv__(self, other: Scalar | Number) -> Scalar:
        return _binary("div", self, other)

    def __rtruediv__(self, other: Number) -> Scalar:
        return _binary("div", _constant_like(other, self), self)

    def __neg__(self) -> Scalar:
        return _float_unary("arith.negf")(self)

    def __lt__(self, other: Scalar | Number) -> Scalar:
        return _compare("lt", self, other)

    def __le__(self, other: Scalar | Number) -> Scalar:
        return _compare("le", self, other)

    def __gt__(self, other: Scalar | Number) -> Scalar:
        return _compare("gt", self, other)

    def __ge__(self, other: Scalar | Number) -> Scalar:
        return _compare("ge", self, other)

    def __and__(self, other: Scalar | int) -> Scalar:
        return _integer("arith.andi", self, other)

    def __or__(self, other: Scalar | int) -> Scalar:
        return _integer("arith.ori", self, other)

    def __xor__(self, other: Scalar | int) -> Scalar:
        return _integer("arith.xori", self, other)

    def __rshift__(self, other: Scalar | int) -> Scalar:
        """Shift right, filling with zeros (the element is taken as unsigned)."""
        return _integer("arith.shrui", self, other)

    def __lshift__(self, other: Scalar | int) -> Scalar:
        return _integer("arith.shli", self, other)


def _emit(name: str, type_: Any, *operands: Any, **attributes: Any) -> Scalar:
    op = mlir.Operation.create(name, results=[type_], operands=list(operands), attributes=attributes)
    return Scalar(op.results[0])


def constant(value: Number | bool, dtype: str) -> Scalar:
    """Return a constant of a dtype."""
    type_ = element_type(dtype)
    if dtype == "i1":
        return Scalar(arith.constant(type_, int(bool(value))))
    return Scalar(arith.constant(type_, float(value) if dtype[0] in "fb" else int(value)))


def _constant_like(value: Number, like: Scalar) -> Scalar:
    return constant(value, like.dtype)


def _lift(value: Scalar | Number, like: Scalar) -> Scalar:
    lifted = value if isinstance(value, Scalar) else _constant_like(value, like)
    if lifted.dtype != like.dtype:
        raise DtypeError(f"expected two scalars of one dtype, got {like.dtype} and {lifted.dtype}; cast one of them")
    return lifted


def _binary(kind: str, a: Scalar, b: Scalar | Number) -> Scalar:
    rhs = _lift(b, a)
    if not a.is_float and kind == "div":
        raise DtypeError("expected float scalars in a division; use floor_divide for unsigned integers")
    suffix = "f" if a.is_float else "i"
    return _emit(f"arith.{kind}{suffix}", a.value.type, a.value, rhs.value)


def _integer(name: str, a: Scalar, b: Scalar | int) -> Scalar:
    return _emit(name, a.value.type, a.value, _lift(b, a).value)


def _compare(kind: str, a: Scalar, b: Scalar | Number) -> Scalar:
    rhs = _lift(b, a)
    name, table = ("arith.cmpf", _CMP_FLOAT) if a.is_float else ("arith.cmpi", _CMP_INT)
    predicate = mlir.IntegerAttr.get(mlir.IntegerType.get_signless(64), table[kind])
    return _emit(name, element_type("i1"), a.value, rhs.value, predicate=predicate)


def equal(a: Scalar, b: Scalar | Number) -> Scalar:
    """Return whether two scalars are equal."""
    return _compare("eq", a, b)


def select(condition: Scalar, if_true: Scalar | Number, if_false: Scalar | Number) -> Scalar:
    """Return one of two scalars; at least one must be a Scalar."""
    like = if_true if isinstance(if_true, Scalar) else if_false
    if not isinstance(like, Scalar):
        raise DtypeError("expected at least one Scalar among the two choices of select")
    a, b = _lift(if_true, like), _lift(if_false, like)
    return _emit("arith.select", like.value.type, condition.value, a.value, b.value)


def _float_unary(name: str) -> Callable[[Scalar], Scalar]:
    def function(x: Scalar) -> Scalar:
        if not x.is_float:
            raise DtypeError(f"expected a float scalar in {name}, got {x.dtype}")
        return _emit(name, x.value.type, x.value)

    return function


exp = _float_unary("math.exp")
log = _float_unary("math.log")
log1p = _float_unary("math.log1p")
expm1 = _float_unary("math.expm1")
sqrt = _float_unary("math.sqrt")
rsqrt = _float_unary("math.rsqrt")
sin = _float_unary("math.sin")
cos = _float_unary("math.cos")
tanh = _float_unary("math.tanh")
floor = _float_unary("math.floor")
absolute = _float_unary("math.absf")


def maximum(a: Scalar, b: Scalar | Number) -> Scalar:
    """Return the larger of two floats; NaN if either is NaN."""
    return _emit("arith.maximumf", a.value.type, a.value, _lift(b, a).value)


def minimum(a: Scalar, b: Scalar | Number) -> Scalar:
    """Return the smaller of two floats; NaN if either is NaN."""
    return _emit("arith.minimumf", a.value.type, a.value, _lift(b, a).value)


def fma(a: Scalar, b: Scalar, c: Scalar) -> Scalar:
    """Return a*b + c with one rounding."""
    return _emit("math.fma", a.value.type, a.value, b.value, c.value)


def sigmoid(x: Scalar) -> Scalar:
    """Return 1/(1+exp(-x))."""
    return 1.0 / (1.0 + exp(-x))


def softplus(x: Scalar) -> Scalar:
    """Return log(1+exp(x)), and x itself above 20."""
    return select(x > 20.0, x, log1p(exp(minimum(x, 20.0))))


def widen_unsigned(x: Scalar) -> Scalar:
    """Convert an i32, taken as unsigned, to i64."""
    return _emit("arith.extui", element_type("i64"), x.value)


def multiply_high(a: Scalar, b: Scalar) -> tuple[Scalar, Scalar]:
    """Return the low and high halves of the product of two i32, taken as unsigned."""
    product = widen_unsigned(a) * widen_unsigned(b)
    return cast(product, "i32"), cast(product >> 32, "i32")


def cast(x: Scalar, dtype: str) -> Scalar:
    """Convert a scalar: floats between widths, signed integers to floats, integers between widths."""
    if x.dtype == dtype:
        return x
    order = {"i1": 1, "i32": 32, "i64": 64, "bf16": 16, "f32": 32, "f64": 64}
    to_float = dtype[0] in "fb"
    wider = order[dtype] > order[x.dtype]
    match (x.is_float, to_float):
        case (True, True):
            name = "arith.extf" if wider else "arith.truncf"
        case (False, True):
            name = "arith.uitofp" if x.dtype == "i1" else "arith.sitofp"
        case (True, False):
            name = "arith.fptosi"
        case _:
            name = ("arith.extui" if x.dtype == "i1" else "arith.extsi") if wider else "arith.trunci"
    return _emit(name, element_type(dtype), x.value)


def unsigned_to_float(x: Scalar, dtype: str) -> Scalar:
    """Convert an integer, taken as unsigned, to a float."""
    return _emit("arith.uitofp", element_type(dtype), x.value)


def index(dim: int) -> Scalar:
    """Return the position along an output dimension of the surrounding map, as i32."""
    attribute = mlir.IntegerAttr.get(mlir.IntegerType.get_signless(64), dim)
    return _emit("train.index", element_type("i32"), dim=attribute)
