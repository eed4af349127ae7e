"""Copies that take their innermost axis apart by a constant write as many elements at once.

    for k<136: r[k] = x[k % 4 * 34 + k // 4]    →    for q<34: r[4q] = x[q]; r[4q + 1] = x[34 + q]; …

Every statement then reads contiguous elements, and compilers interleave vectors of them. A shuffle of channels has this
form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlc.kernel.expr import Apply, Axis, Const, Expr, axes_in, walk
from dlc.kernel.loops.program import Stmt, Store
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.flat import at
from dlc.kernel.simplify import conjuncts

MOST = 8
"""Streams that are read at once."""


def interleaved(nest: Nest, axes: Sequence[Axis]) -> tuple[tuple[Axis, ...], tuple[Stmt, ...]]:
    """The axes of a flat assignment and what its innermost loop does (see the module's equation)."""
    divisors = set(_divisors(nest.body, axes[-1])) if axes else set[int]()
    if len(divisors) != 1 or not _divides(c := divisors.pop(), axes[-1]) or axes[-1] in axes_in(*conjuncts(nest.where)):
        return tuple(axes), (Store(nest.out, nest.index[0], nest.body),)
    *outer, axis = axes
    quotient = Axis(axis.name, axis.extent // c)
    parts: list[dict[Expr, Expr]] = [{axis: quotient * c + r} for r in range(c)]
    return (*outer, quotient), tuple(Store(nest.out, at(nest.index[0], p), at(nest.body, p)) for p in parts)


def _divides(c: int, axis: Axis) -> bool:
    """Whether an axis is some steps of a few elements each."""
    return 0 < c <= MOST and axis.extent % c == 0 and axis.extent > c and axis.limit is None


def _divisors(e: Expr, axis: Axis) -> Iterator[int]:
    """By what the axis is divided in subscripts; 0 where a subscript divides a sum that has it."""
    for x in walk(e):
        match x:
            case Apply("floordiv" | "mod", (Axis() as a, Const(int() as c))) if a == axis:
                yield c
            case Apply("floordiv" | "mod", (inner, _)) if axis in axes_in(inner):
                yield 0
            case _:
                pass
