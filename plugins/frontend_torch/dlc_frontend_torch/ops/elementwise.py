"""Operators on each element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from dlc.base.types import DType, bool_, f32
from dlc.graph import Op
from dlc.ops import elementwise as e
from dlc_frontend_torch.rules import aten
from dlc_frontend_torch.unsupported import Unsupported
from dlc_frontend_torch.values import cast, dtype_of, expanded, floats, number, operand, promoted

FLOAT_UNARY: Final[dict[str, Callable[[Op], Op]]] = {
    "exp": e.Exp,
    "log": e.Log,
    "sqrt": e.Sqrt,
    "tanh": e.Tanh,
    "sigmoid": e.Sigmoid,
    "erf": e.Erf,
    "sin": e.Sin,
    "cos": e.Cos,
    "tan": e.Tan,
    "asin": e.Asin,
    "acos": e.Acos,
    "atan": e.Atan,
    "sinh": e.Sinh,
    "cosh": e.Cosh,
    "asinh": e.Asinh,
    "acosh": e.Acosh,
    "atanh": e.Atanh,
    "reciprocal": e.Reciprocal,
    "rsqrt": lambda x: e.Reciprocal(e.Sqrt(x)),
    "log1p": lambda x: e.Log(e.Add(x, number(1.0, x.dtype))),
    "expm1": lambda x: e.Sub(e.Exp(x), number(1.0, x.dtype)),
    "log2": lambda x: e.Mul(e.Log(x), number(1 / math.log(2), x.dtype)),
    "log10": lambda x: e.Mul(e.Log(x), number(1 / math.log(10), x.dtype)),
    "exp2": lambda x: e.Exp(e.Mul(x, number(math.log(2), x.dtype))),
    "silu": lambda x: e.Mul(x, e.Sigmoid(x)),
    "mish": e.Mish,
    "hardswish": e.HardSwish,
    "log_sigmoid": lambda x: e.Neg(e.Softplus(e.Neg(x))),
    "hardsigmoid": lambda x: e.HardSigmoid(x, alpha=1 / 6, beta=0.5),
    "selu": e.Selu,
    "softsign": e.Softsign,
}
"""Functions of one float; integers become floats."""

UNARY: Final[dict[str, Callable[[Op], Op]]] = {
    "relu": e.Relu,
    "neg": e.Neg,
    "abs": e.Abs,
    "sign": e.Sign,
    "sgn": e.Sign,
    "square": lambda x: e.Mul(x, x),
    "isnan": e.IsNan,
    "isinf": e.IsInf,
    "logical_not": lambda x: e.Not(cast(x, bool_)),
    "bitwise_not": lambda x: e.Not(x) if x.dtype == bool_ else e.BitNot(x),
    "relu6": lambda x: e.Clip(x, low=0.0, high=6.0),
}
"""Functions of one element that keep its type."""

ROUNDING: Final[dict[str, Callable[[Op], Op]]] = {"floor": e.Floor, "ceil": e.Ceil, "round": e.Round}


def _declare() -> None:
    def of_floats(make: Callable[[Op], Op]) -> Callable[[Op], Op]:
        return lambda x: make(floats(x))

    def rounding(make: Callable[[Op], Op]) -> Callable[[Op], Op]:
        return lambda x: make(x) if x.dtype.is_float else x

    for name, make in FLOAT_UNARY.items():
        aten(name)(of_floats(make))
    for name, make in UNARY.items():
        aten(name)(make)
    for name, make in ROUNDING.items():
        aten(name)(rounding(make))


_declare()


def together(a: Any, b: Any, dtype: DType | None = None) -> tuple[Op, Op]:
    """Two operands in the element type in which they meet."""
    dtype = dtype or promoted(a, b)
    return operand(a, dtype), operand(b, dtype)


def binary(make: Callable[[Op, Op], Op], a: Any, b: Any) -> Any:
    """A binary op of what meets; numbers alone are computed here."""
    return make(*together(a, b))


def _both(a: Any, b: Any) -> bool:
    return not isinstance(a, Op) and not isinstance(b, Op)


@aten("add", "_operator.add")
def add(a: Any, b: Any, alpha: Any = 1) -> Any:
    """a + alpha·b."""
    if _both(a, b):
        return a + b
    dtype = promoted(a, b)
    x, y = operand(a, dtype), operand(b, dtype)
    if alpha != 1:
        y = e.Mul(y, operand(alpha, dtype))
    return e.Or(x, y) if dtype == bool_ else e.Add(x, y)


@aten("sub", "subtract", "_operator.sub")
def sub(a: Any, b: Any, alpha: Any = 1) -> Any:
    """a - alpha·b."""
    if _both(a, b):
        return a - b
    dtype = promoted(a, b)
    y = operand(b, dtype)
    return e.Sub(operand(a, dtype), y if alpha == 1 else e.Mul(y, operand(alpha, dtype)))


@aten("rsub")
def rsub(a: Any, b: Any, alpha: Any = 1) -> Any:
    """b - alpha·a."""
    return sub(b, a, alpha)


@aten("mul", "multiply", "_operator.mul")
def mul(a: Any, b: Any) -> Any:
    """a · b."""
    if _both(a, b):
        return a * b
    x, y = together(a, b)
    return e.And(x, y) if x.dtype == bool_ else e.Mul(x, y)


@aten("div", "true_divide", "_operator.truediv")
def div(a: Any, b: Any, rounding_mode: str | None = None) -> Any:
    """a / b, of floats unless a rounding mode is given."""
    if _both(a, b):
        return a / b
    dtype = promoted(a, b)
    if rounding_mode is None:
        dtype = dtype if dtype.is_float else f32
        return e.Div(operand(a, dtype), operand(b, dtype))
    x, y = operand(a, dtype), operand(b, dtype)
    if rounding_mode == "floor":
        return _floor_div(x, y)
    if rounding_mode != "trunc":
        raise Unsupported(f"rounding mode {rounding_mode}")
    if not dtype.is_float:
        return e.Div(x, y)
    found = e.Div(x, y)
    return e.Where(e.Less(found, number(0.0, dtype)), e.Ceil(found), e.Floor(found))


@aten("floor_divide", "_operator.floordiv")
def floor_divide(a: Any, b: Any) -> Any:
    """⌊a / b⌋."""
    return a // b if _both(a, b) else _floor_div(*together(a, b))


def _floor_div(x: Op, y: Op) -> Op:
    if x.dtype.is_float:
        return e.Floor(e.Div(x, y))
    return e.Div(e.Sub(x, e.Mod(x, y)), y)


@aten("remainder", "_operator.mod")
def remainder(a: Any, b: Any) -> Any:
    """a mod b, with the sign of b."""
    return a % b if _both(a, b) else binary(e.Mod, a, b)


@aten("fmod")
def fmod(a: Any, b: Any) -> Op:
    """a mod b, with the sign of a."""
    return binary(lambda x, y: e.Mod(x, y, fmod=True), a, b)


@aten("pow")
def power(a: Any, b: Any) -> Op:
    """a ** b; small whole exponents are products."""
    if isinstance(b, (int, float)) and isinstance(a, Op) and (a.dtype.is_float or b == int(b) >= 0):
        if b == 0.5:
            return e.Sqrt(a)
        if b == -0.5:
            return e.Reciprocal(e.Sqrt(a))
        if b in (-1, -2) and a.dtype.is_float:
            return e.Reciprocal(a if b == -1 else e.Mul(a, a))
        if b in (1, 2, 3, 4):
            square = e.Mul(a, a)
            return {1: a, 2: square, 3: e.Mul(square, a), 4: e.Mul(square, square)}[int(b)]
    return binary(e.Pow, a, b)


@aten("maximum", "max.other", "fmax")
def maximum(a: Any, b: Any) -> Op:
    """The larger element."""
    return binary(e.Maximum, a, b)


@aten("minimum", "min.other", "fmin")
def minimum(a: Any, b: Any) -> Op:
    """The smaller element."""
    return binary(e.Minimum, a, b)


def _declare_logic() -> None:
    compared: dict[str, Callable[[Op, Op], Op]] = {
        "eq": e.Equal,
        "ne": lambda a, b: e.Not(e.Equal(a, b)),
        "lt": e.Less,
        "le": e.LessOrEqual,
        "gt": e.Greater,
        "ge": e.GreaterOrEqual,
    }
    logical: dict[str, Callable[[Op, Op], Op]] = {"and": e.And, "or": e.Or, "xor": e.Xor}
    bitwise: dict[str, Callable[[Op, Op], Op]] = {"and": e.BitAnd, "or": e.BitOr, "xor": e.BitXor}

    def comparison(make: Callable[[Op, Op], Op]) -> Callable[[Any, Any], Op]:
        return lambda a, b: binary(make, a, b)

    def of_bools(make: Callable[[Op, Op], Op]) -> Callable[[Any, Any], Op]:
        return lambda a, b: make(operand(a, bool_), operand(b, bool_))

    def of_bits(name: str) -> Callable[[Any, Any], Op]:
        return lambda a, b: (logical if promoted(a, b) == bool_ else bitwise)[name](*together(a, b))

    for name, make in compared.items():
        aten(name)(comparison(make))
    for name, make in logical.items():
        aten(f"logical_{name}")(of_bools(make))
        aten(f"bitwise_{name}")(of_bits(name))
        aten(f"__{name}__")(of_bits(name))


_declare_logic()


@aten("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(condition: Op, a: Any, b: Any) -> Op:
    """a where the condition holds, else b."""
    return e.Where(cast(condition, bool_), *together(a, b))


@aten("masked_fill")
def masked_fill(x: Op, mask: Op, value: Any) -> Op:
    """x, with a value where the mask holds."""
    found = e.Where(cast(mask, bool_), operand(value, x.dtype), x)
    return expanded(found, x.shape)


@aten("to.dtype", "_to_copy", "to.dtype_layout", "to.device")
def to(x: Op, *others: Any, dtype: Any = None, copy: bool = False, **ignored: Any) -> Op:
    """x as another element type."""
    del copy, ignored
    named = next((o for o in others if isinstance(o, str) and o not in ("cpu",)), dtype)
    return cast(x, dtype_of(named, x.dtype))


@aten("type_as", "to.other")
def type_as(x: Op, other: Op, *ignored: Any) -> Op:
    """x as the element type of another tensor."""
    del ignored
    return cast(x, other.dtype)


@aten("clone", "contiguous", "detach", "alias", "lift_fresh_copy", "lift_fresh", "copy.default", "copy")
def same(x: Op, *others: Any) -> Op:
    """The value itself; `copy` gives the second operand, in the type and shape of the first."""
    if others and isinstance(others[0], Op):
        return expanded(cast(others[0], x.dtype), x.shape)
    return x


@aten("addcmul")
def addcmul(x: Op, a: Op, b: Op, value: float = 1) -> Op:
    """x + value · a · b."""
    return add(x, mul(a, b), value)


@aten("addcdiv")
def addcdiv(x: Op, a: Op, b: Op, value: float = 1) -> Op:
    """x + value · a / b."""
    return add(x, div(a, b), value)


@aten("lerp")
def lerp(a: Op, b: Op, weight: Any) -> Op:
    """a + weight · (b - a)."""
    return add(a, mul(sub(b, a), weight))


@aten("dropout", "feature_dropout", "native_dropout", "alpha_dropout")
def dropout(x: Op, p: float, train: bool | None = False) -> Any:
    """The value itself at inference."""
    if train and p > 0:
        raise Unsupported(
            "dropout draws random numbers of PyTorch",
            "export the module in inference mode: module.eval(); dlc train trains it without dropout",
        )
    return x
