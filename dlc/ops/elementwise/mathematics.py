"""Elementary functions of each element, of floating point."""

from __future__ import annotations

from dlc.ops.pointwise import Unary


class Exp(Unary):
    """y = eˣ."""

    fn = "exp"


class Log(Unary):
    """y = ln x."""

    fn = "log"


class Sqrt(Unary):
    """y = √x."""

    fn = "sqrt"


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
