"""Formulas of values that are known when the program runs, written with Python's operators.

    n = clip(end, 0, extent) - start        Term(Sub(Minimum(Maximum(end, 0), extent), start))

The same formula on numpy arrays gives the number where all is known when the model is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dlc.base.extents import is_extent, larger, smaller
from dlc.base.types import DType, bool_, f64
from dlc.graph import Op
from dlc.ops import elementwise as e
from dlc.ops.pointwise import scalar
from dlc.ops.shape import Reshape
from dlc_frontend_onnx.node import cast, constant

Number: TypeAlias = Any
"""A `Term`, an array, a number or a symbolic dimension: what formulas are written with."""


@dataclass(frozen=True, eq=False)
class Term:
    """A value of the graph in a formula; what it is combined with broadcasts."""

    op: Op

    __array_ufunc__ = None
    """Numpy leaves operators with an array on the left to this class."""

    def _with(self, kind: Callable[[Op, Op], Op], other: Number) -> Term:
        return Term(kind(self.op, as_op(other, self.op.dtype)))

    def _after(self, kind: Callable[[Op, Op], Op], other: Number) -> Term:
        return Term(kind(as_op(other, self.op.dtype), self.op))

    def __add__(self, other: Number) -> Term:
        return self._with(e.Add, other)

    def __radd__(self, other: Number) -> Term:
        return self._after(e.Add, other)

    def __sub__(self, other: Number) -> Term:
        return self._with(e.Sub, other)

    def __rsub__(self, other: Number) -> Term:
        return self._after(e.Sub, other)

    def __mul__(self, other: Number) -> Term:
        return self._with(e.Mul, other)

    def __rmul__(self, other: Number) -> Term:
        return self._after(e.Mul, other)

    def __truediv__(self, other: Number) -> Term:
        return self._with(e.Div, other)

    def __rtruediv__(self, other: Number) -> Term:
        return self._after(e.Div, other)

    def __mod__(self, other: Number) -> Term:
        return self._with(e.Mod, other)

    def __neg__(self) -> Term:
        return Term(e.Neg(self.op))

    def __lt__(self, other: Number) -> Term:
        return self._with(e.Less, other)

    def __le__(self, other: Number) -> Term:
        return self._with(e.LessOrEqual, other)

    def __gt__(self, other: Number) -> Term:
        return self._with(e.Greater, other)

    def __ge__(self, other: Number) -> Term:
        return self._with(e.GreaterOrEqual, other)

    def __or__(self, other: Number) -> Term:
        return self._with(e.Or, other)

    def __and__(self, other: Number) -> Term:
        return self._with(e.And, other)

    def same(self, other: Number) -> Term:
        """Whether both are equal."""
        return self._with(e.Equal, other)


def as_op(x: Number, dtype: DType) -> Op:
    """A part of a formula as a value of this type."""
    if isinstance(x, Term):
        return cast(x.op, dtype)
    if isinstance(x, np.ndarray):
        return constant(x, dtype)
    return scalar(x, dtype)


def where(condition: Number, a: Number, b: Number) -> Number:
    """a where the condition holds, else b."""
    parts = (condition, a, b)
    if not any(isinstance(x, Term) for x in parts):
        choose: Any = np.where
        return choose(condition, a, b)
    dtype = next((x.op.dtype for x in (a, b) if isinstance(x, Term)), f64)
    return Term(e.Where(as_op(condition, bool_), as_op(a, dtype), as_op(b, dtype)))


def choose(condition: Number, then: Callable[[], Number], otherwise: Callable[[], Number]) -> Number:
    """One of two values; only that one is computed where the condition is known."""
    if isinstance(condition, Term):
        return where(condition, then(), otherwise())
    return then() if condition else otherwise()


def same(a: Number, b: Number) -> Number:
    """Whether two numbers are equal, element by element."""
    return a.same(b) if isinstance(a, Term) else a == b


def either(a: Number, b: Number) -> Number:
    """Whether one of two conditions holds, element by element."""
    return b | a if isinstance(b, Term) else a | b


def _function(op: Callable[[Op], Op], of_array: Callable[[Any], Any]) -> Callable[[Number], Number]:
    return lambda x: Term(op(x.op)) if isinstance(x, Term) else of_array(x)


floor = _function(e.Floor, np.floor)
ceil = _function(e.Ceil, np.ceil)
absolute = _function(e.Abs, np.abs)


def smallest(a: Number, b: Number) -> Number:
    """The least of two."""
    return _paired(e.Minimum, smaller, np.minimum, a, b)


def largest(a: Number, b: Number) -> Number:
    """The greatest of two."""
    return _paired(e.Maximum, larger, np.maximum, a, b)


def _paired(
    op: Callable[[Op, Op], Op], of_sizes: Callable[[int, int], int], of_arrays: Any, a: Number, b: Number
) -> Number:
    """A function that does not mind which of its operands is the first."""
    if isinstance(a, Term) or isinstance(b, Term):
        first, other = (a, b) if isinstance(a, Term) else (b, a)
        return Term(op(first.op, as_op(other, first.op.dtype)))
    return of_sizes(a, b) if is_extent(a) and is_extent(b) else of_arrays(a, b)


def clip(x: Number, low: Number, high: Number) -> Number:
    """The nearest to x that is from `low` to `high`."""
    return smallest(largest(x, low), high)


def lying(line: Number, axis: int, rank: int) -> Number:
    """A vector along one of `rank` dimensions, of which all others are 1."""
    if isinstance(line, Term):
        shape = tuple(line.op.type.size if d == axis else 1 for d in range(rank))
        return line if rank == 1 else Term(Reshape(line.op, to=shape))
    return line.reshape([-1 if d == axis else 1 for d in range(rank)])
