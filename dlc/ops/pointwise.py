"""What the op modules share: numpy-style broadcasting, typed literals, and ops that work element by element."""

from __future__ import annotations

from dlc.base.extents import Dim
from dlc.base.types import DType, Type
from dlc.graph.op import Op
from dlc.graph.pointwise import Binary, Pointwise, Unary, at, broadcast
from dlc.graph.structure import Splat
from dlc.kernel.define import ShapeError
from dlc.kernel.expr import Expr, apply
from dlc.ops.sizes import Size

__all__ = [
    "Binary",
    "Pointwise",
    "Unary",
    "at",
    "broadcast",
    "ceil_div",
    "is_extreme",
    "literal",
    "normalized",
    "scalar",
]


def is_extreme(element: Expr, extreme: Expr, dtype: DType) -> Expr:
    """Whether an element is the largest or smallest of those around it, as numpy has it: NaN is, where there is one."""
    equal = apply("eq", element, extreme)
    return apply("or", equal, apply("isnan", element)) if dtype.is_float else equal


def literal(value: float, dtype: DType) -> bool | int | float:
    """A number as a Python literal of the kind that `dtype` takes."""
    if dtype.is_float:
        return float(value)
    return int(value) if dtype.is_integer else bool(value)


def scalar(value: float, dtype: DType) -> Op:
    """A number, or a size, as an operand that broadcasts with everything."""
    if isinstance(value, Dim):
        return Size(value, to=dtype)
    return Splat(literal(value, dtype), Type(dtype, ()))


def normalized(axis: int, rank: int) -> int:
    """An axis counted from the front.

    Raises:
        ShapeError: the tensor has no such axis.
    """
    if not -rank <= axis < rank:
        raise ShapeError(f"axis {axis} of a tensor with {rank} dimensions")
    return axis % rank


def ceil_div(a: Expr, b: int) -> Expr:
    """⌈a / b⌉ for positive b."""
    return apply("floordiv", a + (b - 1), b)
