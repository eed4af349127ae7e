# ruff: noqa: ARG005 - the formula of a derivative need not use the value and every argument
"""The scalar functions an expression may apply: numpy value, type rule and derivative, one line each.

This is the whole table. A backend spells every entry in its own language, and a test asserts that its table is total.

A derivative is written as what reverse mode needs: from the cotangent `g` of the value `y` and the arguments, the
cotangents of the arguments. Every formula uses `g` once, so that nested functions grow by a sum, not by a product.
Where a function has no derivative, the value chosen is a usual subgradient: abs'(0) = 0, equal arguments of min and max
share the cotangent evenly, 0 ** 0 is constant in both arguments. Two rules have no formula, because it is not one of
values: a cast turns the cotangent into the argument's type, and `select` hands it to the branch that was chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from dlc.base.types import DTYPES, Array, DType, bool_, in_compute_type
from dlc.base.uses import NUMPY, used
from dlc.kernel.expr import Const, Expr, apply, select

Rule = Literal["same", "bool", "select", "cast", "bits"]
Cotangents: TypeAlias = tuple[Expr | None, ...]
Grad: TypeAlias = Callable[..., Cotangents]


@dataclass(frozen=True)
class Scalar:
    """A scalar function.

    Attributes:
        name: How expressions and kernel text spell it.
        arity: Number of arguments.
        numpy: The reference value on arrays (broadcasting).
        rule: Result type: `same` as the arguments, `bool`, `select` (type of the branches), `cast` or `bits`.
        to: The target type of a cast; of `bits`, the type of the same size that the argument's bits are read as.
        domain: Which argument types make sense: any, numbers, floats, ints or bools.
        infix: The operator that kernel text prints, or "" for call notation.
        grad: `grad(g, y, *args)` gives the cotangent of every argument (None: zero everywhere). Without it no argument
            has a derivative.
        steps: Whether the function is piecewise constant in floating point, which is why it has no `grad`.
        lanes: The element types for which vectors have it: none, all floats, or f32. A backend with vectors has all.
        cycles: What a value takes, or a vector of them, where an addition takes 1: roughly, as schedules need it.
    """

    name: str
    arity: int
    numpy: Callable[..., Array]
    rule: Rule = "same"
    to: DType | None = None
    domain: Literal["any", "number", "float", "int", "bool"] = "number"
    infix: str = ""
    grad: Grad | None = None
    steps: bool = False
    lanes: Literal["", "float", "f32"] = ""
    cycles: float = 1.0

    @cached_property
    def value(self) -> Callable[..., Any]:
        """The reference value on arrays of any element type; `numpy` is defined for numpy's own."""
        return self.numpy if self.rule in ("cast", "select", "bits") else _rounding(self.numpy)


def _erf(x: Array) -> Array:
    table = np.vectorize(math.erf, otypes=[np.float64])
    return table(x.astype(np.float64)).astype(x.dtype) if x.size else x


def _truncdiv(a: Array, b: Array) -> Array:
    """C's integer division: rounds toward zero (numpy's floors)."""
    quotient = np.floor_divide(a, b)
    upward = (np.remainder(a, b) != 0) & ((np.asarray(a) < 0) != (np.asarray(b) < 0))
    return np.where(upward, quotient + 1, quotient)


def _pow(a: Array, b: Array) -> Array:
    """Of integers with a negative exponent the power's whole part, 0 to a negative power is 0: numpy raises there."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind != "i" or not np.any(b < 0):
        return np.power(a, b)
    whole = np.power(a, np.maximum(b, 0))
    unit = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0))
    return np.where(b < 0, unit, whole).astype(whole.dtype)


def _cast(to: DType) -> Callable[..., Array]:
    def convert(x: Array) -> Array:
        x = in_compute_type(np.asarray(x))
        if to.is_integer and x.dtype.kind == "f":
            return _whole(x, to)
        with np.errstate(invalid="ignore", over="ignore"):
            # To a type that numpy does not have by way of the type that it is computed in: there it is rounded once.
            return (x.astype(to.compute.numpy) if to.library else x).astype(to.numpy)

    return convert


def _bits(to: DType) -> Callable[..., Array]:
    def read(x: Array) -> Array:
        bits = np.asarray(x).view(f"u{to.itemsize}")
        return bits != 0 if to is bool_ else bits.view(to.numpy)

    return read


def _shift(fn: Callable[..., Array]) -> Callable[..., Array]:
    """Beyond the width, and by a negative number, all bits go: numpy does so too, but does not promise it."""

    def shifted(a: Array, b: Array) -> Array:
        a, b = np.asarray(a), np.asarray(b)
        width = a.dtype.itemsize * 8
        inside = (b >= 0) & (b < width)
        left = fn is np.left_shift
        gone = np.zeros_like(a) if left else fn(a, np.asarray(width - 1, a.dtype)) >> np.asarray(1, a.dtype)
        return np.where(inside, fn(a, np.where(inside, b, np.zeros_like(b))), gone)

    return shifted


def _whole(x: Array, to: DType) -> Array:
    """Floats as integers, toward zero. A processor does with NaN and what is out of range as it likes, and numpy lets
    it: here they are the smallest integer of 64 bits, of 32 for types below, and wrap.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        whole = np.trunc(x.astype(np.float64))
    bits = 64 if to.itemsize == 8 or to.name == "u32" else 32
    inside = (whole >= -(2.0 ** (bits - 1))) & (whole < 2.0 ** (bits - 1))
    found = np.where(inside, np.where(inside, whole, 0.0).astype(np.int64), -(1 << (bits - 1)))
    if to.name == "u64":
        large = (whole >= 2.0**63) & (whole < 2.0**64)
        return np.where(large, np.where(large, whole, 0.0).astype(np.uint64), found.astype(np.uint64))
    return found.astype(to.numpy)


def _rounding(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of numpy's types for all types: values of those that numpy does not have are computed in their compute
    type, and a result that is no comparison is rounded to theirs."""

    def value(*args: Any) -> Any:
        for a in args:
            of = getattr(a, "dtype", None)
            if of is not None and of.isbuiltin == 2:
                break
        else:
            return fn(*args)
        found = np.asarray(fn(*(in_compute_type(np.asarray(a)) for a in args)))
        return found if found.dtype.kind == "b" else found.astype(of)

    return value


def note_library(fn: str, values: Iterable[Array]) -> None:
    """Note that a function is computed whose last bits are up to numpy."""
    if fn in LIBRARY and any(v.dtype.kind not in "biu" for v in values):
        used(NUMPY)


def combine_at(fn: str, out: Array, index: tuple[Array, ...], value: Array) -> None:
    """out[index] = fn(out[index], value), for every index in turn; narrow elements are rounded once, at the end."""
    wide = in_compute_type(out)
    _UFUNCS[fn].at(wide, index, in_compute_type(value))
    if wide is not out:
        out[...] = wide.astype(out.dtype)


def combine_runs(fn: str, values: Array, starts: Array) -> Array:
    """What each run of rows that begins at one of `starts` is combined into; narrow elements are rounded once."""
    return _UFUNCS[fn].reduceat(in_compute_type(values), starts, axis=0).astype(values.dtype, copy=False)


def _share(g: Expr, smaller: Expr, own: Expr, other: Expr) -> Expr:
    """The cotangent of one of two arguments of which the extreme one counts; equal ones share. NaN is passed on."""
    return select(smaller, 0.0, g * select(apply("eq", own, other), 0.5, 1.0))


def _pow_grad(g: Expr, y: Expr, a: Expr, b: Expr) -> Cotangents:
    """a ** b: b·a^(b-1), which is 0 for b = 0; y·ln a, which is 0 for a = 0 unless b < 0 (then y is infinite)."""
    exponent = select(apply("and", apply("eq", a, 0.0), b >= 0.0), 0.0, g * (y * apply("log", a)))
    if not isinstance(b, Const):
        return select(apply("eq", b, 0.0), 0.0, g * (b * apply("pow", a, b - 1.0))), exponent
    power = float(b.value)
    if power in (0.0, 1.0):
        return (g if power else None), None
    return g * (power * (a if power == 2.0 else apply("pow", a, power - 1.0))), None


def _f(
    name: str,
    fn: Callable[..., Any],
    grad: Callable[[Expr, Expr, Expr], Expr] | None = None,
    domain: Literal["number", "float"] = "float",
    lanes: Literal["", "float", "f32"] = "",
    cycles: float = 1.0,
) -> Scalar:
    """A function of one argument; without a derivative it goes in steps."""

    def cotangent(g: Expr, y: Expr, a: Expr) -> Cotangents:
        assert grad is not None
        return (grad(g, y, a),)

    grads = grad and cotangent
    return Scalar(name, 1, fn, domain=domain, grad=grads, steps=grad is None, lanes=lanes, cycles=cycles)


def _compare(name: str, fn: Callable[..., Any], infix: str) -> Scalar:
    return Scalar(name, 2, fn, rule="bool", domain="any", infix=infix)


def _binary(
    name: str,
    fn: Callable[..., Any],
    grad: Callable[[Expr, Expr, Expr, Expr], Cotangents],
    infix: str = "",
    domain: Literal["number", "float"] = "number",
    lanes: Literal["", "float", "f32"] = "",
    cycles: float = 1.0,
) -> Scalar:
    return Scalar(name, 2, fn, domain=domain, infix=infix, grad=grad, lanes=lanes, cycles=cycles)


_OF_BYTES: Final = tuple(t for t in DTYPES.values() if t.bits % 8 == 0)
"""Types whose elements have no bits that do not count."""

_TABLE: Final = (
    _binary("add", np.add, lambda g, y, a, b: (g, g), "+", lanes="float"),
    _binary("sub", np.subtract, lambda g, y, a, b: (g, -g), "-", lanes="float"),
    _binary("mul", np.multiply, lambda g, y, a, b: (g * b, g * a), "*", lanes="float"),
    _binary("div", np.divide, lambda g, y, a, b: (g / b, -(g * y / b)), "/", domain="float", lanes="float", cycles=8.0),
    Scalar("floordiv", 2, np.floor_divide, domain="int", infix="//", cycles=20.0),
    _binary("mod", np.mod, lambda g, y, a, b: (g, -(g * apply("floor", a / b))), "%", cycles=30.0),
    Scalar("truncdiv", 2, _truncdiv, domain="int", cycles=20.0),
    Scalar("bitand", 2, np.bitwise_and, domain="int"),
    Scalar("bitor", 2, np.bitwise_or, domain="int"),
    Scalar("bitxor", 2, np.bitwise_xor, domain="int"),
    Scalar("shl", 2, _shift(np.left_shift), domain="int"),
    Scalar("shr", 2, _shift(np.right_shift), domain="int"),  # the sign bit moves in from the left
    # (a - y) / b is the quotient without its fraction, but for rounding.
    _binary("fmod", np.fmod, lambda g, y, a, b: (g, -(g * apply("round", (a - y) / b))), cycles=60.0),
    _binary("pow", _pow, _pow_grad, cycles=60.0),
    _binary("min", np.minimum, lambda g, y, a, b: (_share(g, a > b, a, b), _share(g, b > a, b, a)), lanes="float"),
    _binary("max", np.maximum, lambda g, y, a, b: (_share(g, a < b, a, b), _share(g, b < a, b, a)), lanes="float"),
    _f("neg", np.negative, lambda g, y, a: -g, "number", lanes="float"),
    _f("abs", np.abs, lambda g, y, a: g * apply("sign", a), "number", lanes="f32"),
    _f("sign", np.sign, domain="number"),
    _f("exp", np.exp, lambda g, y, a: g * y, lanes="f32", cycles=20.0),
    _f("log", np.log, lambda g, y, a: g / a, cycles=40.0),
    _f("log1p", np.log1p, lambda g, y, a: g / (a + 1.0), cycles=40.0),
    _f("sqrt", np.sqrt, lambda g, y, a: g * 0.5 / y, cycles=8.0),
    _f("sin", np.sin, lambda g, y, a: g * apply("cos", a), cycles=40.0),
    _f("cos", np.cos, lambda g, y, a: -(g * apply("sin", a)), cycles=40.0),
    _f("tan", np.tan, lambda g, y, a: g * (y * y + 1.0), cycles=60.0),
    _f("asin", np.arcsin, lambda g, y, a: g / apply("sqrt", (1.0 - a) * (a + 1.0)), cycles=60.0),
    _f("acos", np.arccos, lambda g, y, a: -(g / apply("sqrt", (1.0 - a) * (a + 1.0))), cycles=60.0),
    _f("atan", np.arctan, lambda g, y, a: g / (a * a + 1.0), cycles=60.0),
    _f("sinh", np.sinh, lambda g, y, a: g * apply("cosh", a), cycles=60.0),
    _f("cosh", np.cosh, lambda g, y, a: g * apply("sinh", a), cycles=60.0),
    _f("tanh", np.tanh, lambda g, y, a: g * (1.0 - y * y), lanes="f32", cycles=24.0),
    _f("asinh", np.arcsinh, lambda g, y, a: g / apply("sqrt", a * a + 1.0), cycles=80.0),
    _f("acosh", np.arccosh, lambda g, y, a: g / apply("sqrt", (a - 1.0) * (a + 1.0)), cycles=80.0),
    _f("atanh", np.arctanh, lambda g, y, a: g / ((1.0 - a) * (a + 1.0)), cycles=80.0),
    _f("erf", _erf, lambda g, y, a: g * (apply("exp", -(a * a)) * (2 / math.sqrt(math.pi))), lanes="f32", cycles=26.0),
    _f("floor", np.floor, cycles=2.0),
    _f("ceil", np.ceil, cycles=2.0),
    _f("round", np.rint, lanes="f32", cycles=2.0),  # half to even, as ONNX and IEEE 754 roundToIntegralTiesToEven
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
    Scalar("select", 3, np.where, rule="select", domain="any", cycles=1.5),
    *(Scalar(t.name, 1, _cast(t), rule="cast", to=t, domain="any") for t in DTYPES.values()),
    *(Scalar(f"bits_{t.name}", 1, _bits(t), rule="bits", to=t, domain="any") for t in _OF_BYTES),
)

SCALARS: Final[dict[str, Scalar]] = {s.name: s for s in _TABLE}
_SIGNS: Final = ("neg", "abs", "sign", "min", "max", "floor", "ceil", "round")
_BITS: Final = ("and", "or", "xor", "not", "bitand", "bitor", "bitxor", "shl", "shr")
_EXACT: Final = frozenset(("add", "sub", "mul", "div", "floordiv", "truncdiv", "sqrt", *_SIGNS, *_BITS))
"""Functions of numbers of which IEEE 754, or their definition, says every bit."""
LIBRARY: Final = frozenset(s.name for s in _TABLE if s.rule == "same" and s.name not in _EXACT)
"""The others: the last bits of floats are up to whoever computes them."""
_UFUNCS: Final[dict[str, np.ufunc]] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
"""Those that reduce."""


def result_dtype(fn: str, args: tuple[DType | None, ...]) -> DType | None:
    """The type of `fn` applied to arguments of these types; None stands for a literal, which adapts to the others.

    Raises:
        TypeError: the arguments have different types (casts are explicit), or the function is not defined for them.
    """
    scalar = SCALARS[fn]
    if scalar.rule == "cast":
        return scalar.to
    if scalar.rule == "bits" and scalar.to is not None:
        if args[0] is not None and args[0].bits != scalar.to.bits:
            raise TypeError(f"{fn} of {args[0]}, which has {args[0].bits} bits")
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
