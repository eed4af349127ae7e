"""Comparisons, logic, operations on bits, and choices between elements."""

from __future__ import annotations

from dlc.base.types import DType
from dlc.graph.op import Op
from dlc.kernel.expr import Expr, apply, select
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


class BitAnd(Binary):
    """y = a & b, bit by bit, of integers."""

    fn = "bitand"


class BitOr(Binary):
    """y = a | b, bit by bit, of integers."""

    fn = "bitor"


class BitXor(Binary):
    """y = a ^ b, bit by bit, of integers."""

    fn = "bitxor"


class BitNot(Unary):
    """y = ~x, bit by bit, of integers."""

    def scalar(self, *values: Expr) -> Expr:
        ones = self.x.dtype.limits[1] if self.x.dtype.kind == "uint" else -1
        return apply("bitxor", values[0], ones)


class ShiftLeft(Binary):
    """y = a · 2ᵇ of integers, without the bits that do not fit; 0 where b is negative or not below the width."""

    fn = "shl"


class ShiftRight(Binary):
    """y = ⌊a / 2ᵇ⌋ of integers; where b is negative or not below the width 0, or -1 if a is negative."""

    fn = "shr"


class BitCast(Unary):
    """y = the bits of x read as the element type `to`, which has the same size."""

    to: DType

    def scalar(self, *values: Expr) -> Expr:
        return apply(f"bits_{self.to.name}", *values)


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
