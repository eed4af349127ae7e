"""The order of elements along an axis."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dlc.graph.op import Op
from dlc.graph.tensor import Array
from dlc.kernel.define import Comp, ShapeError, comp, grid, inside
from dlc.kernel.expr import Axis, Expr, apply


class Rank(Op):
    """y[i] = how many elements along `axis` come before x[i] when sorted: a permutation of 0 … n - 1.

    The largest comes first (or the smallest, without `largest`), of equal ones the first; NaN counts as larger than
    any number. The definition compares all pairs; loops keep a heap (`schedules/ranking.py`).
    """

    exact: ClassVar[bool] = True
    x: Op
    axis: int = 0
    largest: bool = True

    def define(self, *params: Any) -> Comp:
        (x,) = params
        if not 0 <= self.axis < len(x.shape):
            raise ShapeError(f"axis {self.axis} of {x.type}")
        i = grid(x.shape)
        place = i[self.axis]
        j = Axis("j", x.shape[self.axis])
        mine, other = x[i], x[tuple(j if a is place else a for a in i)]
        first, second = (other, mine) if self.largest else (mine, other)
        before = self._greater(first, second)
        earlier = apply("and", apply("not", self._greater(second, first)), j < place)
        return comp(i, apply("i64", apply("or", before, earlier)), sum=(j,))

    def _greater(self, a: Expr, b: Expr) -> Expr:
        if not self.x.dtype.is_float:
            return a > b
        return apply("or", a > b, apply("and", apply("isnan", a), apply("not", apply("isnan", b))))

    def evaluate(self, *args: Array) -> Any:
        # Sorting backward keeps NaN, which numpy sorts last, in front; reversing twice keeps equal elements in order.
        x = np.flip(args[0], self.axis) if self.largest else args[0]
        order = np.argsort(x, self.axis, kind="stable")
        if self.largest:
            order = x.shape[self.axis] - 1 - np.flip(order, self.axis)
        return np.argsort(order, self.axis, kind="stable")  # the inverse of a permutation is what sorts it


class Placed(Op):
    """y[r[i]] = i for the r[i] from 0 to `count` - 1 along `axis`: of the places r, the elements at the first ones.

    No place may occur twice. Where a place has no element, y is 0.
    """

    places: Op
    axis: int = 0
    count: int = 0

    def define(self, *params: Any) -> Comp:
        (places,) = params
        if not 0 <= self.axis < len(places.shape) or not 0 <= self.count <= places.shape[self.axis]:
            raise ShapeError(f"{self.count} elements along axis {self.axis} of {places.type}")
        if not places.dtype.is_integer:
            raise ShapeError(f"places are of type {places.dtype}")
        i = grid(places.shape)
        place = places[i]
        index = tuple(place if d == self.axis else a for d, a in enumerate(i))
        shape = tuple(self.count if d == self.axis else e for d, e in enumerate(places.shape))
        return comp(index, apply("i64", i[self.axis]), where=inside((place, self.count)), into=shape, over=i)


class FirstOf(Op):
    """The `count` elements along `axis` that come first in the order of `Rank`, by their subscripts."""

    x: Op
    axis: int = 0
    count: int = 0
    largest: bool = True

    def expand(self) -> Op:
        return Placed(Rank(self.x, axis=self.axis, largest=self.largest), axis=self.axis, count=self.count)
