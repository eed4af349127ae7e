"""Ops on each element; binary ones broadcast as numpy does.

Semantics are those of the ONNX operators of the same name (opset 13 and later) unless a docstring says otherwise; both
operands have one element type, casts are explicit.
"""

from __future__ import annotations

import math
from typing import Literal

from dlc.graph.op import Op
from dlc.kernel.expr import Expr, apply, select
from dlc.ops.pointwise import Pointwise, literal
from dlc.types import DType


class _Binary(Pointwise, abstract=True):
    a: Op
    b: Op


class _Unary(Pointwise, abstract=True):
    x: Op


class Add(_Binary):
    """y = a + b."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("add", *values)


class Sub(_Binary):
    """y = a - b."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("sub", *values)


class Mul(_Binary):
    """y = a · b."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("mul", *values)


class Div(_Binary):
    """y = a / b; integers round toward zero."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("div" if self.a.dtype.is_float else "truncdiv", *values)


class Pow(_Binary):
    """y = a ** b; both of one type."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("pow", *values)


class Minimum(_Binary):
    """y = min(a, b); NaN where either is NaN."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("min", *values)


class Maximum(_Binary):
    """y = max(a, b); NaN where either is NaN."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("max", *values)


class Mod(_Binary):
    """y = a mod b, with the sign of b, or with the sign of a (C's fmod) when `fmod` is set."""

    fmod: bool = False

    def scalar(self, *values: Expr) -> Expr:
        return apply("fmod" if self.fmod else "mod", *values)


class Equal(_Binary):
    """y = (a == b): bool."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("eq", *values)


class Less(_Binary):
    """y = (a < b): bool."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("lt", *values)


class LessOrEqual(_Binary):
    """y = (a <= b): bool."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("le", *values)


class Greater(_Binary):
    """y = (a > b): bool."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("gt", *values)


class GreaterOrEqual(_Binary):
    """y = (a >= b): bool."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("ge", *values)


class And(_Binary):
    """y = a and b, of bools."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("and", *values)


class Or(_Binary):
    """y = a or b, of bools."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("or", *values)


class Xor(_Binary):
    """y = a xor b, of bools."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("xor", *values)


class PRelu(Pointwise):
    """y = x where x >= 0, else slope · x; slope broadcasts. He et al. 2015, "Delving Deep into Rectifiers"."""

    x: Op
    slope: Op

    def scalar(self, *values: Expr) -> Expr:
        x, slope = values
        return select(x < literal(0, self.x.dtype), slope * x, x)


class Where(Pointwise):
    """y = a where condition (bool), else b; all three broadcast."""

    condition: Op
    a: Op
    b: Op

    def scalar(self, *values: Expr) -> Expr:
        return select(*values)


class Neg(_Unary):
    """y = -x."""

    def scalar(self, *values: Expr) -> Expr:
        return -values[0]


class Abs(_Unary):
    """y = |x|."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("abs", *values)


class Sign(_Unary):
    """y = -1, 0 or 1."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("sign", *values)


class Exp(_Unary):
    """y = eˣ."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("exp", *values)


class Log(_Unary):
    """y = ln x."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("log", *values)


class Sqrt(_Unary):
    """y = √x."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("sqrt", *values)


class Reciprocal(_Unary):
    """y = 1 / x."""

    def scalar(self, *values: Expr) -> Expr:
        return 1.0 / values[0]


class Relu(_Unary):
    """y = max(x, 0)."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("max", values[0], literal(0, self.x.dtype))


class LeakyRelu(_Unary):
    """y = x where x >= 0, else alpha · x."""

    alpha: float = 0.01

    def scalar(self, *values: Expr) -> Expr:
        (x,) = values
        return select(x < 0.0, x * self.alpha, x)


class Sigmoid(_Unary):
    """y = 1 / (1 + e⁻ˣ)."""

    def scalar(self, *values: Expr) -> Expr:
        return _sigmoid(values[0])


class Tanh(_Unary):
    """y = tanh x."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("tanh", *values)


class Erf(_Unary):
    """y = erf x = 2/√π ∫₀ˣ e^(-t²) dt."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("erf", *values)


class Floor(_Unary):
    """y = ⌊x⌋."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("floor", *values)


class Ceil(_Unary):
    """y = ⌈x⌉."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("ceil", *values)


class Round(_Unary):
    """y = x rounded to the nearest integer, halves to even."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("round", *values)


class Sin(_Unary):
    """y = sin x, x in radians."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("sin", *values)


class Cos(_Unary):
    """y = cos x, x in radians."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("cos", *values)


class Tan(_Unary):
    """y = tan x, x in radians."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("tan", *values)


class Asin(_Unary):
    """y = arcsin x in [-π/2, π/2]."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("asin", *values)


class Acos(_Unary):
    """y = arccos x in [0, π]."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("acos", *values)


class Atan(_Unary):
    """y = arctan x in (-π/2, π/2)."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("atan", *values)


class Sinh(_Unary):
    """y = sinh x."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("sinh", *values)


class Cosh(_Unary):
    """y = cosh x."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("cosh", *values)


class Asinh(_Unary):
    """y = arsinh x."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("asinh", *values)


class Acosh(_Unary):
    """y = arcosh x, x >= 1."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("acosh", *values)


class Atanh(_Unary):
    """y = artanh x, |x| < 1."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("atanh", *values)


class Softplus(_Unary):
    """y = ln(1 + eˣ), computed as max(x, 0) + ln(1 + e^-|x|) so that it never overflows."""

    def scalar(self, *values: Expr) -> Expr:
        return _softplus(values[0])


class Softsign(_Unary):
    """y = x / (1 + |x|)."""

    def scalar(self, *values: Expr) -> Expr:
        (x,) = values
        return x / (1.0 + apply("abs", x))


class Elu(_Unary):
    """y = x where x >= 0, else alpha · (eˣ - 1). Clevert et al. 2015."""

    alpha: float = 1.0

    def scalar(self, *values: Expr) -> Expr:
        (x,) = values
        return select(x < 0.0, (apply("exp", x) - 1.0) * self.alpha, x)


class Selu(_Unary):
    """y = gamma · x where x > 0, else gamma · (alpha · eˣ - alpha). Klambauer et al. 2017."""

    alpha: float = 1.67326319217681884765625
    gamma: float = 1.05070102214813232421875

    def scalar(self, *values: Expr) -> Expr:
        (x,) = values
        return select(x > 0.0, x, apply("exp", x) * self.alpha - self.alpha) * self.gamma


class Celu(_Unary):
    """y = max(0, x) + min(0, alpha · (e^(x/alpha) - 1)). Barron 2017."""

    alpha: float = 1.0

    def scalar(self, *values: Expr) -> Expr:
        (x,) = values
        negative = (apply("exp", x / self.alpha) - 1.0) * self.alpha
        return apply("max", x, 0.0) + apply("min", negative, 0.0)


class HardSigmoid(_Unary):
    """y = max(0, min(1, alpha · x + beta))."""

    alpha: float = 0.2
    beta: float = 0.5

    def scalar(self, *values: Expr) -> Expr:
        return _unit(values[0] * self.alpha + self.beta)


class HardSwish(_Unary):
    """y = x · max(0, min(1, x/6 + 1/2)). Howard et al. 2019, MobileNetV3."""

    def scalar(self, *values: Expr) -> Expr:
        (x,) = values
        return x * _unit(x * (1 / 6) + 0.5)


class Mish(_Unary):
    """y = x · tanh(softplus(x)). Misra 2019."""

    def scalar(self, *values: Expr) -> Expr:
        (x,) = values
        return x * apply("tanh", _softplus(x))


class ThresholdedRelu(_Unary):
    """y = x where x > alpha, else 0."""

    alpha: float = 1.0

    def scalar(self, *values: Expr) -> Expr:
        (x,) = values
        return select(x > self.alpha, x, 0.0)


class Gelu(_Unary):
    """y = x · Φ(x) with Φ exact (by erf), or approximated by tanh. Hendrycks and Gimpel 2016."""

    approximate: Literal["none", "tanh"] = "none"

    def scalar(self, *values: Expr) -> Expr:
        (x,) = values
        if self.approximate == "tanh":
            inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
            return x * 0.5 * (apply("tanh", inner) + 1.0)
        return x * 0.5 * (apply("erf", x * math.sqrt(0.5)) + 1.0)


class Not(_Unary):
    """y = not x, of bools."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("not", *values)


class IsNan(_Unary):
    """y = whether x is NaN: bool."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("isnan", *values)


class IsInf(_Unary):
    """y = whether x is +∞ or -∞: bool."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("isinf", *values)


class Clip(_Unary):
    """y = min(max(x, low), high); a bound that is None does not apply."""

    low: float | int | None = None
    high: float | int | None = None

    def scalar(self, *values: Expr) -> Expr:
        (y,) = values
        if self.low is not None:
            y = apply("max", y, literal(self.low, self.x.dtype))
        if self.high is not None:
            y = apply("min", y, literal(self.high, self.x.dtype))
        return y


class Cast(_Unary):
    """y = x converted to the element type `to`: floats to integers toward zero, numbers to bool by `x != 0`."""

    to: DType

    def scalar(self, *values: Expr) -> Expr:
        return apply(self.to.name, *values)


def _sigmoid(x: Expr) -> Expr:
    return 1.0 / (1.0 + apply("exp", -x))


def _softplus(x: Expr) -> Expr:
    return apply("max", x, 0.0) + apply("log1p", apply("exp", -apply("abs", x)))


def _unit(x: Expr) -> Expr:
    return apply("max", apply("min", x, 1.0), 0.0)
