"""Determinants of small matrices."""

from __future__ import annotations

from itertools import permutations
from typing import Any, Final

from dlc.base.types import i64
from dlc.graph.op import Op
from dlc.kernel.define import Comp, ShapeError, comp, grid
from dlc.kernel.expr import Expr, apply, lift, select
from dlc.ops.elementwise import Abs, Div, Equal, Mul, Neg, Sub, Where
from dlc.ops.index import GatherElements
from dlc.ops.pointwise import scalar
from dlc.ops.reduce import ArgMax
from dlc.ops.shape import Expand, Reshape, Slice

LARGEST: Final = 32
"""Rows of a matrix; each becomes ops of its own."""
_BY_FORMULA: Final = 3


class Det(Op):
    """y[b…] = det x[b…,:,:]: Σ over permutations of three rows; larger ones by elimination with partial pivoting.

    With more than three rows the derivative of a singular matrix is that of the eliminated one: where a pivot is 0
    the cofactors of its column that lie below it count as 0.
    """

    x: Op

    def expand(self) -> Op | None:
        shape = self.x.shape
        if len(shape) < 2 or shape[-1] != shape[-2]:
            raise ShapeError(f"{self.x.type} is not a square matrix")
        if not self.x.dtype.is_float:
            raise ShapeError(f"the determinant of {self.x.type}: only of floating point")
        if shape[-1] > LARGEST:
            raise ShapeError(f"the determinant of {shape[-1]} rows; at most {LARGEST} are supported")
        return None if shape[-1] <= _BY_FORMULA else self._eliminated()

    def _eliminated(self) -> Op:
        """± the largest element of the first column · the determinant of what elimination leaves of the others."""
        x, zero = self.x, scalar(0.0, self.x.dtype)
        *batch, n, _ = x.shape
        first = _part(x, columns=(0, 1))
        at = ArgMax(Abs(first), axis=len(batch), keep=True)
        row = GatherElements(x, Expand(at, to=(*batch, 1, n)), axis=len(batch))
        pivot = _part(row, columns=(0, 1))
        others = OtherRows(x, at)
        below = _part(others, columns=(0, 1))
        factor = Div(below, Where(Equal(pivot, zero), scalar(1.0, x.dtype), pivot))
        rest = Sub(_part(others, columns=(1, n)), Mul(factor, _part(row, columns=(1, n))))
        signed = Where(Equal(at, scalar(0, i64)), pivot, Neg(pivot))
        return Mul(Reshape(signed, to=tuple(batch)), Det(rest))

    def define(self, *params: Any) -> Comp:
        (x,) = params
        n = x.shape[-1]
        batch = grid(x.shape[:-2], "b")
        total: Expr | None = None
        for columns in permutations(range(n)):
            term: Expr = lift(1.0)
            for row, column in enumerate(columns):
                element = x[(*batch, row, column)]
                term = element if row == 0 else term * element
            odd = sum(a > b for k, a in enumerate(columns) for b in columns[k + 1 :]) % 2
            total = term if total is None else total - term if odd else total + term
        assert total is not None
        return comp(batch, total if n else apply(x.dtype.name, 1.0))


class OtherRows(Op):
    """y[b…] = the rows of x[b…] but row at[b…], whose place the first row takes; `at` is [B…, 1, 1]."""

    x: Op
    at: Op

    def define(self, *params: Any) -> Comp:
        x, at = params
        if len(x.shape) < 2 or not x.shape[-2] or at.shape != (*x.shape[:-2], 1, 1) or not at.dtype.is_integer:
            raise ShapeError(f"the rows of {x.type} but {at.type}")
        *batch, i, j = grid((*x.shape[:-2], x.shape[-2] - 1, x.shape[-1]))
        taken = apply("eq", at[(*batch, 0, 0)], apply(at.dtype.name, i + 1))
        return comp((*batch, i, j), select(taken, x[(*batch, 0, j)], x[(*batch, i + 1, j)]))


def _part(x: Op, rows: tuple[int, int] | None = None, columns: tuple[int, int] | None = None) -> Op:
    """Rows and columns from a start up to a stop, of each matrix."""
    spans = [(0, e) for e in x.shape]
    spans[-2], spans[-1] = rows or spans[-2], columns or spans[-1]
    return Slice(x, starts=tuple(a for a, _ in spans), sizes=tuple(b - a for a, b in spans))
