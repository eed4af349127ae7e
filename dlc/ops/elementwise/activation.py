"""Activation functions of neural networks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from dlc.graph.op import Op
from dlc.kernel.expr import Expr, apply, select
from dlc.ops.elementwise.arithmetic import Add, Mul, Sub
from dlc.ops.elementwise.logic import And, Greater, Less, Where
from dlc.ops.pointwise import Pointwise, Unary, literal, scalar

# At its corner an activation has the slope of the side of negative x, as PyTorch and relu'(0) = 0 have it.


class PRelu(Pointwise):
    """y = x where x > 0, else slope · x; slope broadcasts. He et al. 2015, "Delving Deep into Rectifiers"."""

    x: Op
    slope: Op

    def scalar(self, *values: Expr) -> Expr:
        x, slope = values
        return select(x > literal(0, self.x.dtype), x, slope * x)


class Relu(Unary):
    """y = max(x, 0)."""

    def scalar(self, *values: Expr) -> Expr:
        return apply("max", values[0], literal(0, self.x.dtype))

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None] | None:
        # 0 at 0, where max shares its cotangent. Told from y, so that x need not be kept.
        zero = scalar(0.0, self.x.dtype)
        return [None if g is None else Where(Greater(self, zero), g, zero) for g in seeds]


class LeakyRelu(Unary):
    """y = x where x > 0, else alpha · x."""

    alpha: float = 0.01

    def scalar(self, *values: Expr) -> Expr:
        (x,) = values
        return select(x > 0.0, x, x * self.alpha)


class Sigmoid(Unary):
    """y = 1 / (1 + e⁻ˣ)."""

    def scalar(self, *values: Expr) -> Expr:
        return _sigmoid(values[0])

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None] | None:
        # y · (1 - y): for x far below 0, where e⁻ˣ overflows, the derivative of the quotient is no number.
        slope = Mul(self, Sub(scalar(1.0, self.x.dtype), self))
        return [None if g is None else Mul(g, slope) for g in seeds]


class Softplus(Unary):
    """y = ln(1 + eˣ), computed as max(x, 0) + ln(1 + e^-|x|) so that it never overflows."""

    def scalar(self, *values: Expr) -> Expr:
        return _softplus(values[0])


class Softsign(Unary):
    """y = x / (1 + |x|)."""

    def scalar(self, *values: Expr) -> Expr:
        (x,) = values
        return x / (1.0 + apply("abs", x))


class Elu(Unary):
    """y = x where x > 0, else alpha · (eˣ - 1). Clevert et al. 2015."""

    alpha: float = 1.0

    def scalar(self, *values: Expr) -> Expr:
        (x,) = values
        return select(x > 0.0, x, (apply("exp", x) - 1.0) * self.alpha)


class Selu(Unary):
    """y = gamma · x where x > 0, else gamma · (alpha · eˣ - alpha). Klambauer et al. 2017."""

    alpha: float = 1.67326319217681884765625
    gamma: float = 1.05070102214813232421875

    def scalar(self, *values: Expr) -> Expr:
        (x,) = values
        return select(x > 0.0, x, apply("exp", x) * self.alpha - self.alpha) * self.gamma


class Celu(Unary):
    """y = x where x > 0, else alpha · (e^(x/alpha) - 1). Barron 2017."""

    alpha: float = 1.0

    def scalar(self, *values: Expr) -> Expr:
        (x,) = values
        return select(x > 0.0, x, (apply("exp", x / self.alpha) - 1.0) * self.alpha)


class HardSigmoid(Unary):
    """y = max(0, min(1, alpha · x + beta))."""

    alpha: float = 0.2
    beta: float = 0.5

    def scalar(self, *values: Expr) -> Expr:
        return _unit(values[0] * self.alpha + self.beta)

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None] | None:
        # 0 where it is cut off, the two corners included.
        zero, one, slope = (scalar(v, self.x.dtype) for v in (0.0, 1.0, self.alpha))
        inside = And(Greater(self, zero), Less(self, one))
        return [None if g is None else Where(inside, Mul(g, slope), zero) for g in seeds]


class HardSwish(Unary):
    """y = x · max(0, min(1, x/6 + 1/2)). Howard et al. 2019, MobileNetV3."""

    def scalar(self, *values: Expr) -> Expr:
        (x,) = values
        return x * _unit(x * (1 / 6) + 0.5)

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None] | None:
        # The gate is constant at its corners, as HardSigmoid is: 0 at -3, 1 at 3.
        x, gate = self.x, HardSigmoid(self.x, alpha=1 / 6)
        bent = And(Greater(gate, scalar(0.0, x.dtype)), Less(gate, scalar(1.0, x.dtype)))
        slope = Add(gate, Where(bent, Mul(x, scalar(1 / 6, x.dtype)), scalar(0.0, x.dtype)))
        return [None if g is None else Mul(g, slope) for g in seeds]


class Mish(Unary):
    """y = x · tanh(softplus(x)). Misra 2019."""

    def scalar(self, *values: Expr) -> Expr:
        (x,) = values
        return x * apply("tanh", _softplus(x))


class ThresholdedRelu(Unary):
    """y = x where x > alpha, else 0."""

    alpha: float = 1.0

    def scalar(self, *values: Expr) -> Expr:
        (x,) = values
        return select(x > self.alpha, x, 0.0)


class Gelu(Unary):
    """y = x · Φ(x) with Φ exact (by erf), or approximated by tanh. Hendrycks and Gimpel 2016."""

    approximate: Literal["none", "tanh"] = "none"

    def scalar(self, *values: Expr) -> Expr:
        (x,) = values
        if self.approximate == "tanh":
            inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
            return x * 0.5 * (apply("tanh", inner) + 1.0)
        return x * 0.5 * (apply("erf", x * math.sqrt(0.5)) + 1.0)


def _sigmoid(x: Expr) -> Expr:
    return 1.0 / (1.0 + apply("exp", -x))


def _softplus(x: Expr) -> Expr:
    return apply("max", x, 0.0) + apply("log1p", apply("exp", -apply("abs", x)))


def _unit(x: Expr) -> Expr:
    return apply("max", apply("min", x, 1.0), 0.0)
