"""Arithmetic on each element: sums, products, extrema, rounding, conversion."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.graph.op import Op
from dlc.kernel.expr import Expr, apply
from dlc.ops.elementwise.logic import And, GreaterOrEqual, LessOrEqual, Where
from dlc.ops.pointwise import Binary, Unary, literal, scalar


class Add(Binary):
    """y = a + b."""

    fn = "add"


class Sub(Binary):
    """y = a - b."""

    fn = "sub"


class Mul(Binary):
    """y = a · b."""

    fn = "mul"


class Div(Binary):
    """y = a / b; integers round toward zero."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("div" if self.a.dtype.is_float else "truncdiv", *values)


class Pow(Binary):
    """y = a ** b; both of one type."""

    fn = "pow"


class Minimum(Binary):
    """y = min(a, b); NaN where either is NaN."""

    fn = "min"


class Maximum(Binary):
    """y = max(a, b); NaN where either is NaN."""

    fn = "max"


class Mod(Binary):
    """y = a mod b, with the sign of b, or with the sign of a (C's fmod) when `fmod` is set."""

    fmod: bool = False

    def scalar(self, *values: Expr) -> Expr:
        return apply("fmod" if self.fmod else "mod", *values)


class Neg(Unary):
    """y = -x."""

    fn = "neg"


class Abs(Unary):
    """y = |x|."""

    fn = "abs"


class Sign(Unary):
    """y = -1, 0 or 1."""

    fn = "sign"


class Reciprocal(Unary):
    """y = 1 / x."""

    def scalar(self, *values: Expr) -> Expr:
        return 1.0 / values[0]


class Floor(Unary):
    """y = ⌊x⌋."""

    fn = "floor"


class Ceil(Unary):
    """y = ⌈x⌉."""

    fn = "ceil"


class Round(Unary):
    """y = x rounded to the nearest integer, halves to even."""

    fn = "round"


class Clip(Unary):
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

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None] | None:
        # 1 in the closed interval: at a bound, where min and max share, x is what it was.
        kept: list[Op] = []
        if self.low is not None:
            kept.append(GreaterOrEqual(self.x, scalar(self.low, self.x.dtype)))
        if self.high is not None:
            kept.append(LessOrEqual(self.x, scalar(self.high, self.x.dtype)))
        if not kept:
            return seeds
        inside = kept[0] if len(kept) == 1 else And(*kept)
        return [None if g is None else Where(inside, g, scalar(0.0, self.x.dtype)) for g in seeds]
