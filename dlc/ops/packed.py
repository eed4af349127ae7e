"""Results whose size depends on data: rows are put where they belong, and their number is the size of a symbol."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dlc.base.allowed import Demand
from dlc.base.extents import is_open, symbols
from dlc.base.polynomials import Symbol
from dlc.base.types import Type, bool_, i64
from dlc.graph.op import Op
from dlc.kernel.define import Comp, ShapeError, comp, grid
from dlc.ops.elementwise import Add, Cast
from dlc.ops.index import valid_place
from dlc.ops.reduce import CumSum, ReduceSum
from dlc.ops.shape import Pad, Reshape, Slice


class Packed(Op):
    """y[place[k], …] = x[k, …] where mask[k]: the rows of x that a mask keeps, `size` of them.

    x is [N, …], place an i64[N] of distinct numbers below `size` where the mask holds, and `count` their number, an
    i64[]: what the symbol of `size` is when the program runs.
    """

    x: Op
    mask: Op
    place: Op
    count: Op
    size: int = 0

    def define(self, *params: Any) -> Comp:
        x, mask, place, count = params
        if mask.dtype is not bool_ or place.type != Type(i64, mask.shape) or count.type != Type(i64, ()):
            raise ShapeError(f"the mask is {mask.type}, places are {place.type}, their count {count.type}")
        if not x.shape or mask.shape != x.shape[:1]:
            raise ShapeError(f"a mask {mask.type} for the rows of {x.type}")
        i = grid(x.shape)
        to = valid_place(place[i[0]], self.size, i64)
        return comp((to, *i[1:]), x[i], into=(self.size, *x.shape[1:]), over=i, where=mask[i[0]])

    def demands(self) -> Mapping[str, Demand]:
        return {"place": Demand.rows(self.size)}

    def defines(self) -> Mapping[Symbol, Op]:
        return dict.fromkeys(symbols(self.size), self.count)


def kept(x: Op, mask: Op, size: int) -> Op:
    """The rows of x that a mask keeps, in order."""
    if mask.dtype is not bool_:
        raise ShapeError(f"a mask is bool, not {mask.dtype}")
    ones = Cast(mask, to=i64)
    return Packed(x, mask, before(ones), ReduceSum(ones, axes=(0,), keep=False), size=size)


def before(counts: Op) -> Op:
    """The sum of all that lie before each element of a vector: block by block, so that work grows with n·√n."""
    (n,) = counts.shape
    if is_open((n,)) or n <= SINGLE:
        return CumSum(counts, axis=0, exclusive=True)
    width = math.isqrt(n - 1) + 1
    rows = -(-n // width)
    table = Reshape(Pad(counts, pads=(0, rows * width - n), value=0), to=(rows, width))
    inside = CumSum(table, axis=1, exclusive=True)
    ahead = CumSum(ReduceSum(table, axes=(1,), keep=True), axis=0, exclusive=True)
    return Slice(Reshape(Add(inside, ahead), to=(rows * width,)), starts=(0,), sizes=(n,))


SINGLE = 256
"""Elements of which every one looks at all before it."""
