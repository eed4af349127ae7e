"""Sizes and conditions that a program relies on and that only a call can tell: such a call goes on, or is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from dlc.base.allowed import check_found
from dlc.base.extents import NAME, Dim, capacity, symbols
from dlc.base.polynomials import Symbol
from dlc.base.types import Array, Type, i64
from dlc.graph.op import Op
from dlc.kernel.define import Comp, ShapeError, comp, grid


class Checked(Op):
    """x, if `found`, an i64[], is from `low` to `high`: else the call is refused, and has no result.

    `name` is what messages and the interface in C call the number.
    """

    exact: ClassVar[bool] = True
    x: Op
    found: Op
    name: str
    low: int = 0
    high: int = 0

    def define(self, *params: Any) -> Comp:
        x, found = params
        if found.type != Type(i64, ()) or not NAME.fullmatch(self.name) or not 0 <= self.low <= self.high:
            raise ShapeError(f"{self.name}, a {found.type}, from {self.low} to {self.high}")
        i = grid(x.shape)
        return comp(i, x[i])

    def requires(self) -> Mapping[Symbol, Op]:
        return {Symbol(self.name, self.low, self.high): self.found}

    def evaluate(self, *args: Array) -> Any:
        x, found = args
        check_found(Symbol(self.name, self.low, self.high), int(found))
        return x

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None]:
        return [seeds[0], None]


class FirstRows(Op):
    """The first `size` elements of x along `axis`: `count` of them, an i64[] within the bounds of `size`."""

    x: Op
    count: Op
    size: int
    axis: int = 0

    def define(self, *params: Any) -> Comp:
        x, count = params
        if count.type != Type(i64, ()) or not 0 <= self.axis < len(x.shape):
            raise ShapeError(f"the first of {x.type} along axis {self.axis}, by a count {count.type}")
        if not isinstance(x.shape[self.axis], int) or capacity(self.size) > x.shape[self.axis]:
            raise ShapeError(f"the first {self.size} elements of dimension {self.axis} of {x.type}")
        i = grid([self.size if d == self.axis else e for d, e in enumerate(x.shape)])
        return comp(i, x[i])

    def defines(self) -> Mapping[Symbol, Op]:
        return dict.fromkeys(symbols(self.size), self.count) if isinstance(self.size, Dim) else {}
