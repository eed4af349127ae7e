"""The scalar functions an expression may apply: numpy value and type rule, one line each.

This is the whole table. A backend spells every entry in its own language, and a test asserts that its table is total.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from dlc.types import DTYPES, Array, DType, bool_

Rule = Literal["same", "bool", "select", "cast"]


@dataclass(frozen=True)
class Scalar:
    """A scalar function.

    Attributes:
        name: How expressions and kernel text spell it.
        arity: Number of arguments.
        numpy: The reference value on arrays (broadcasting).
        rule: Result type: `same` as the arguments, `bool`, `select` (type of the branches), or `cast` (see `to`).
        to: The target type of a cast.
        domain: Which argument types make sense: any, numbers, floats, ints or bools.
        infix: The operator that kernel text prints, or "" for call notation.
    """

    name: str
    arity: int
    numpy: Callable[..., Array]
    rule: Rule = "same"
    to: DType | None = None
    domain: Literal["any", "number", "float", "int", "bool"] = "number"
    infix: str = ""


def _erf(x: Array) -> Array:
    table = np.vectorize(math.erf, otypes=[np.float64])
    return table(x.astype(np.float64)).astype(x.dtype) if x.size else x


def _truncdiv(a: Array, b: Array) -> Array:
    """C's integer division: rounds toward zero (numpy's floors)."""
    quotient = np.floor_divide(a, b)
    upward = (np.remainder(a, b) != 0) & ((np.asarray(a) < 0) != (np.asarray(b) < 0))
    return np.where(upward, quotient + 1, quotient)


def _cast(to: DType) -> Callable[..., Array]:
    def convert(x: Array) -> Array:
        with np.errstate(invalid="ignore", over="ignore"):
            return np.asarray(x).astype(to.numpy)

    return convert


def _f(name: str, fn: Callable[..., Any], arity: int = 1) -> Scalar:
    return Scalar(name, arity, fn, domain="float")


def _compare(name: str, fn: Callable[..., Any], infix: str) -> Scalar:
    return Scalar(name, 2, fn, rule="bool", domain="any", infix=infix)


_TABLE: Final = (
    Scalar("add", 2, np.add, infix="+"),
    Scalar("sub", 2, np.subtract, infix="-"),
    Scalar("mul", 2, np.multiply, infix="*"),
    Scalar("div", 2, np.divide, domain="float", infix="/"),
    Scalar("floordiv", 2, np.floor_divide, domain="int", infix="//"),
    Scalar("mod", 2, np.mod, domain="number", infix="%"),
    Scalar("truncdiv", 2, _truncdiv, domain="int"),
    Scalar("fmod", 2, np.fmod),
    Scalar("pow", 2, np.power),
    Scalar("min", 2, np.minimum),
    Scalar("max", 2, np.maximum),
    Scalar("neg", 1, np.negative),
    Scalar("abs", 1, np.abs),
    Scalar("sign", 1, np.sign),
    _f("exp", np.exp),
    _f("log", np.log),
    _f("log1p", np.log1p),
    _f("sqrt", np.sqrt),
    _f("sin", np.sin),
    _f("cos", np.cos),
    _f("tan", np.tan),
    _f("asin", np.arcsin),
    _f("acos", np.arccos),
    _f("atan", np.arctan),
    _f("sinh", np.sinh),
    _f("cosh", np.cosh),
    _f("tanh", np.tanh),
    _f("asinh", np.arcsinh),
    _f("acosh", np.arccosh),
    _f("atanh", np.arctanh),
    _f("erf", _erf),
    _f("floor", np.floor),
    _f("ceil", np.ceil),
    _f("round", np.rint),  # half to even, as ONNX and IEEE 754 roundToIntegralTiesToEven
    Scalar("isnan", 1, np.isnan, rule="bool", domain="float"),
    Scalar("isinf", 1, np.isinf, rule="bool", domain="float"),
    _compare("eq", np.equal, "=="),
    _compare("ne", np.not_equal, "!="),
    _compare("lt", np.less, "<"),
    _compare("le", np.less_equal, "<="),
    _compare("gt", np.greater, ">"),
    _compare("ge", np.greater_equal, ">="),
    Scalar("and", 2, np.logical_and, rule="bool", domain="bool", infix="and"),
    Scalar("or", 2, np.logical_or, rule="bool", domain="bool", infix="or"),
    Scalar("xor", 2, np.logical_xor, rule="bool", domain="bool"),
    Scalar("not", 1, np.logical_not, rule="bool", domain="bool"),
    Scalar("select", 3, np.where, rule="select", domain="any"),
    *(Scalar(t.name, 1, _cast(t), rule="cast", to=t, domain="any") for t in DTYPES.values()),
)

SCALARS: Final[dict[str, Scalar]] = {s.name: s for s in _TABLE}


def result_dtype(fn: str, args: tuple[DType | None, ...]) -> DType | None:
    """The type of `fn` applied to arguments of these types; None stands for a literal, which adapts to the others.

    Raises:
        TypeError: the arguments have different types (casts are explicit), or the function is not defined for them.
    """
    scalar = SCALARS[fn]
    if scalar.rule == "cast":
        return scalar.to
    values = args[1:] if scalar.rule == "select" else args
    known = {a for a in values if a is not None}
    if len(known) > 1:
        raise TypeError(f"{fn} of different types: {', '.join(sorted(map(str, known)))}")
    dtype = next(iter(known), None)
    if dtype is not None and scalar.domain == "float" and not dtype.is_float:
        raise TypeError(f"{fn} is defined for floating point, not {dtype}")
    if dtype is not None and scalar.domain == "int" and not dtype.is_integer:
        raise TypeError(f"{fn} is defined for integers, not {dtype}")
    return bool_ if scalar.rule == "bool" else dtype
