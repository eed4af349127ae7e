"""Elementary functions of each element, of floating point."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.graph.op import Op
from dlc.kernel.expr import Expr, apply
from dlc.ops.elementwise.arithmetic import Div, Mul
from dlc.ops.elementwise.logic import Equal, Where
from dlc.ops.pointwise import Unary, scalar


class Exp(Unary):
    """y = eˣ."""

    fn = "exp"


class Log(Unary):
    """y = ln x."""

    fn = "log"


class Sqrt(Unary):
    """y = √x."""

    fn = "sqrt"


class Root(Unary):
    """y = x^(1/degree), x >= 0: the last step of a norm. Its derivative at 0 counts as 0, as that of a norm of 0."""

    degree: int = 2

    def scalar(self, *values: Expr) -> Expr:
        return apply("sqrt", *values) if self.degree == 2 else apply("pow", values[0], 1 / self.degree)

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None] | None:
        zero, degree = (scalar(v, self.x.dtype) for v in (0.0, float(self.degree)))
        slope = Where(Equal(self.x, zero), zero, Div(self, Mul(self.x, degree)))
        return [None if g is None else Mul(g, slope) for g in seeds]


class Tanh(Unary):
    """y = tanh x."""

    fn = "tanh"


class Erf(Unary):
    """y = erf x = 2/√π ∫₀ˣ e^(-t²) dt."""

    fn = "erf"


class Sin(Unary):
    """y = sin x, x in radians."""

    fn = "sin"


class Cos(Unary):
    """y = cos x, x in radians."""

    fn = "cos"


class Tan(Unary):
    """y = tan x, x in radians."""

    fn = "tan"


class Asin(Unary):
    """y = arcsin x in [-π/2, π/2]."""

    fn = "asin"


class Acos(Unary):
    """y = arccos x in [0, π]."""

    fn = "acos"


class Atan(Unary):
    """y = arctan x in (-π/2, π/2)."""

    fn = "atan"


class Sinh(Unary):
    """y = sinh x."""

    fn = "sinh"


class Cosh(Unary):
    """y = cosh x."""

    fn = "cosh"


class Asinh(Unary):
    """y = arsinh x."""

    fn = "asinh"


class Acosh(Unary):
    """y = arcosh x, x >= 1."""

    fn = "acosh"


class Atanh(Unary):
    """y = artanh x, |x| < 1."""

    fn = "atanh"
