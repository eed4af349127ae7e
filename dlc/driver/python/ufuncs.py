"""Numpy's universal functions as ops, with numpy's own rules for the types of operands and results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from dlc.base.extents import Dim
from dlc.driver.python.place import refused
from dlc.driver.python.traced import Traced, as_traced, as_type, function, in_place, made
from dlc.graph.op import Op
from dlc.graph.structure import Call
from dlc.kernel.define import comp, grid, kernel_of
from dlc.kernel.expr import apply
from dlc.kernel.nest import Param
from dlc.ops import elementwise as e
from dlc.ops.linear import MatMul
from dlc.ops.pointwise import scalar


def call_ufunc(ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: Mapping[str, Any]) -> Traced:
    """What `ufunc(*inputs)` builds. Raises DlcError: it cannot be traced."""
    name = ufunc.__name__
    if method == "reduce" and name in _REDUCTIONS:
        axis = {"axis": 0, **options}
        return function(_REDUCTIONS[name])(*inputs, **{k: v for k, v in axis.items() if v is not None or k == "axis"})
    if options.get("out") is not None:
        raise in_place()
    if method != "__call__" or name not in _UFUNCS or options:
        extra = f" with {', '.join(options)}" if options else "" if method == "__call__" else f".{method}"
        raise refused("no-such-function", f"numpy.{name}{extra} cannot be traced")
    if name == "power" and (found := _plain_power(*inputs)) is not None:
        return found
    *wanted, result = _types(ufunc, inputs)
    operands = [as_type(as_traced(x, t if _is_weak(x) else None), t) for x, t in zip(inputs, wanted, strict=True)]
    if name == "matmul":
        return made("matmul", MatMul, *operands)
    return as_type(made(name, _UFUNCS[name], *operands), result)


def _is_weak(x: Any) -> bool:
    """Whether a value takes the type of what it is combined with, as Python's numbers do."""
    return isinstance(x, (bool, int, float, Dim)) and not isinstance(x, np.generic)


def _types(ufunc: np.ufunc, inputs: Sequence[Any]) -> tuple[np.dtype[Any], ...]:
    """The types in which numpy computes, and the type of the result."""

    def of(x: Any) -> Any:
        if isinstance(x, bool):
            return np.dtype(bool)
        if _is_weak(x):
            return int if isinstance(x, (int, Dim)) else float
        return x.dtype if isinstance(x, Traced) else np.asarray(x).dtype

    types = tuple(map(of, inputs))
    try:
        return ufunc.resolve_dtypes((*types, None))
    except TypeError as problem:
        found = ", ".join(t.__name__ if isinstance(t, type) else str(t) for t in types)
        raise refused("bad-operands", f"numpy.{ufunc.__name__} of {found}: {problem}") from None


def _plain_power(x: Any, exponent: Any) -> Traced | None:
    """x² and √x by what they are, as numpy has it for exponents that are Python numbers."""
    if isinstance(x, Traced) and type(exponent) in (int, float) and x.op.dtype.is_float:
        if exponent == 2:
            return made("power", e.Mul, x, x)
        if exponent == 0.5:
            return made("power", e.Sqrt, x)
    return None


def _by_kernel(name: str) -> Callable[[Op], Op]:
    """A scalar function that no op has, as the kernel that applies it to each element."""

    def build(x: Op) -> Op:
        p, i = Param("x", x.type), grid(x.shape)
        return Call(kernel_of((p,), [comp(i, apply(name, p[i]))], x.dtype), (x,))

    return build


def _number(value: float, like: Op) -> Op:
    return scalar(value, like.dtype)


def _logical(of: Callable[[Op, Op], Op], on_bools: Callable[[Op, Op], Op]) -> Callable[[Op, Op], Op]:
    """Arithmetic, which on booleans is logic."""

    def build(a: Op, b: Op) -> Op:
        return on_bools(a, b) if a.dtype.kind == "bool" else of(a, b)

    return build


def _logical_one(of: Callable[[Op], Op], on_bools: Callable[[Op], Op]) -> Callable[[Op], Op]:
    def build(x: Op) -> Op:
        return on_bools(x) if x.dtype.kind == "bool" else of(x)

    return build


def _floor_divide(a: Op, b: Op) -> Op:
    exact = e.Div(e.Sub(a, e.Mod(a, b)), b)
    return e.Round(exact) if a.dtype.is_float else exact


def _expm1(x: Op) -> Op:
    # e^x - 1 = 2t / (1 - t) with t = tanh(x/2), which loses nothing where x is small.
    t = e.Tanh(e.Mul(x, _number(0.5, x)))
    near = e.Div(e.Add(t, t), e.Sub(_number(1.0, x), t))
    return e.Where(e.Less(e.Abs(x), _number(1.0, x)), near, e.Sub(e.Exp(x), _number(1.0, x)))


def _trunc(x: Op) -> Op:
    return x if not x.dtype.is_float else e.Where(e.Less(x, _number(0.0, x)), e.Ceil(x), e.Floor(x))


def _whole(of: Callable[[Op], Op]) -> Callable[[Op], Op]:
    """A rounding, which leaves integers as they are."""

    def build(x: Op) -> Op:
        return of(x) if x.dtype.is_float else x

    return build


def _as_bool(x: Op) -> Op:
    return x if x.dtype.kind == "bool" else e.Not(e.Equal(x, _number(0.0, x)))


def _logaddexp(a: Op, b: Op) -> Op:
    return e.Add(e.Maximum(a, b), _by_kernel("log1p")(e.Exp(e.Neg(e.Abs(e.Sub(a, b))))))


_ONE: Final[Mapping[str, Callable[[Op], Op]]] = {
    "negative": e.Neg,
    "positive": lambda x: x,
    "absolute": _logical_one(e.Abs, lambda x: x),
    "fabs": e.Abs,
    "sign": e.Sign,
    "exp": e.Exp,
    "exp2": lambda x: e.Exp(e.Mul(x, _number(math.log(2), x))),
    "expm1": _expm1,
    "log": e.Log,
    "log2": lambda x: e.Div(e.Log(x), _number(math.log(2), x)),
    "log10": lambda x: e.Div(e.Log(x), _number(math.log(10), x)),
    "log1p": _by_kernel("log1p"),
    "sqrt": e.Sqrt,
    "square": lambda x: e.Mul(x, x),
    "reciprocal": lambda x: e.Div(_number(1.0, x), x),
    "sin": e.Sin,
    "cos": e.Cos,
    "tan": e.Tan,
    "arcsin": e.Asin,
    "arccos": e.Acos,
    "arctan": e.Atan,
    "sinh": e.Sinh,
    "cosh": e.Cosh,
    "tanh": e.Tanh,
    "arcsinh": e.Asinh,
    "arccosh": e.Acosh,
    "arctanh": e.Atanh,
    "floor": _whole(e.Floor),
    "ceil": _whole(e.Ceil),
    "rint": _whole(e.Round),
    "trunc": _trunc,
    "logical_not": lambda x: e.Not(_as_bool(x)),
    "invert": _logical_one(e.BitNot, e.Not),
    "isnan": e.IsNan,
    "isinf": e.IsInf,
    "isfinite": lambda x: e.Not(e.Or(e.IsNan(x), e.IsInf(x))),
}
_TWO: Final[Mapping[str, Callable[[Op, Op], Op]]] = {
    "add": _logical(e.Add, e.Or),
    "subtract": e.Sub,
    "multiply": _logical(e.Mul, e.And),
    "divide": e.Div,
    "floor_divide": _floor_divide,
    "remainder": e.Mod,
    "fmod": lambda a, b: e.Mod(a, b, fmod=True),
    "power": e.Pow,
    "hypot": lambda a, b: e.Sqrt(e.Add(e.Mul(a, a), e.Mul(b, b))),
    "logaddexp": _logaddexp,
    "maximum": _logical(e.Maximum, e.Or),
    "minimum": _logical(e.Minimum, e.And),
    "equal": _logical(e.Equal, lambda a, b: e.Not(e.Xor(a, b))),
    "not_equal": _logical(lambda a, b: e.Not(e.Equal(a, b)), e.Xor),
    "less": _logical(e.Less, lambda a, b: e.And(e.Not(a), b)),
    "less_equal": _logical(e.LessOrEqual, lambda a, b: e.Or(e.Not(a), b)),
    "greater": _logical(e.Greater, lambda a, b: e.And(a, e.Not(b))),
    "greater_equal": _logical(e.GreaterOrEqual, lambda a, b: e.Or(a, e.Not(b))),
    "logical_and": lambda a, b: e.And(_as_bool(a), _as_bool(b)),
    "logical_or": lambda a, b: e.Or(_as_bool(a), _as_bool(b)),
    "logical_xor": lambda a, b: e.Xor(_as_bool(a), _as_bool(b)),
    "bitwise_and": _logical(e.BitAnd, e.And),
    "bitwise_or": _logical(e.BitOr, e.Or),
    "bitwise_xor": _logical(e.BitXor, e.Xor),
    "matmul": MatMul,
}
"""Name → the op, on operands of the types that numpy computes in."""
_UFUNCS: Final[Mapping[str, Callable[..., Op]]] = {**_ONE, **_TWO}
_REDUCTIONS: Final = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}
