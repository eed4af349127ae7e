"""Sizes of dimensions as data: what shapes that are computed in a model begin with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlc.base.types import DType, i64
from dlc.graph.op import Op
from dlc.kernel.define import Comp, ShapeError, axes, comp
from dlc.kernel.expr import Const, apply, lift


class Sizes(Op):
    """y[k] = the size of `dims[k]`, an i64: numbers and symbolic dimensions."""

    dims: tuple[int, ...] = ()

    def define(self, *params: Any) -> Sequence[Comp]:
        if not self.dims:
            raise ShapeError("sizes of no dimensions")
        return [comp((Const(k),), apply("i64", lift(d)), into=(len(self.dims),)) for k, d in enumerate(self.dims)]


class Size(Op):
    """The size of one dimension, or a product of several, as a scalar of type `to`."""

    dim: int
    to: DType = i64

    def define(self, *params: Any) -> Comp:
        return comp((), apply(self.to.name, apply("i64", lift(self.dim))))


class Count(Op):
    """y[i] = start + i·step for `count` elements, integers of type `to`; start and count may be symbolic dimensions."""

    count: int
    start: int = 0
    step: int = 1
    to: DType = i64

    def define(self, *params: Any) -> Comp:
        if not self.to.is_integer or self.to.narrow:
            raise ShapeError(f"numbers of type {self.to}")
        (i,) = axes("i", self.count)
        return comp((i,), apply(self.to.name, apply("i64", i * self.step + lift(self.start))))
