"""Counts of short sequences in longer ones."""

from __future__ import annotations

from typing import Any

from dlc.graph.op import Op
from dlc.kernel.define import Comp, ShapeError, axes, comp
from dlc.kernel.expr import Expr, apply, both


class NgramCounts(Op):
    """y[b,g]: i64 = how many pairs of i and s, 1 <= s <= `strides`, have x[b, i + j·s] = grams[g,j] for every j.

    x is [B, C], grams [G, N] of the same integer type.
    """

    x: Op
    grams: Op
    strides: int = 1

    def define(self, *params: Any) -> Comp:
        x, grams = params
        if len(x.shape) != 2 or len(grams.shape) != 2 or not grams.shape[1] or self.strides < 1:
            raise ShapeError(f"counts of {grams.type} in {x.type} with strides up to {self.strides}")
        if not x.dtype.is_integer:
            raise ShapeError(f"elements are compared for equality: {x.type} is not of integers")
        b, g, s, i = axes("b g s i", x.shape[0], grams.shape[0], self.strides, x.shape[1])
        found: Expr | None = None
        for j in range(grams.shape[1]):
            found = both(found, apply("eq", x[b, i + (s + 1) * j], grams[g, j]))
        reach = i + (s + 1) * (grams.shape[1] - 1)
        assert found is not None
        return comp((b, g), apply("i64", found), sum=(s, i), where=reach < x.shape[1])
