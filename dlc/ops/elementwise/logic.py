"""Comparisons, logic, and choices between elements."""

from __future__ import annotations

from dlc.graph.op import Op
from dlc.kernel.expr import Expr, select
from dlc.ops.pointwise import Binary, Pointwise, Unary


class Equal(Binary):
    """y = (a == b): bool."""

    fn = "eq"


class Less(Binary):
    """y = (a < b): bool."""

    fn = "lt"


class LessOrEqual(Binary):
    """y = (a <= b): bool."""

    fn = "le"


class Greater(Binary):
    """y = (a > b): bool."""

    fn = "gt"


class GreaterOrEqual(Binary):
    """y = (a >= b): bool."""

    fn = "ge"


class And(Binary):
    """y = a and b, of bools."""

    fn = "and"


class Or(Binary):
    """y = a or b, of bools."""

    fn = "or"


class Xor(Binary):
    """y = a xor b, of bools."""

    fn = "xor"


class Not(Unary):
    """y = not x, of bools."""

    fn = "not"


class Where(Pointwise):
    """y = a where condition (bool), else b; all three broadcast."""

    condition: Op
    a: Op
    b: Op

    def scalar(self, *values: Expr) -> Expr:
        return select(*values)


class IsNan(Unary):
    """y = whether x is NaN: bool."""

    fn = "isnan"


class IsInf(Unary):
    """y = whether x is +∞ or -∞: bool."""

    fn = "isinf"
