"""What normalisations by statistics of x itself share: values, statistics and gradients.

Between forward and backward only x and the statistics live. x - mean and what follows are computed again where they
are needed: that takes less time than memory does. So the ops below are distinct where they are read far apart; what is
one op is computed once and kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dlc.graph.op import Op
from dlc.kernel.define import Comp, ShapeError, comp, grid
from dlc.kernel.expr import Axis, Expr
from dlc.kernel.nest import Param
from dlc.ops.elementwise import Add, Mul, Reciprocal, Sqrt, Sub
from dlc.ops.pointwise import Pointwise, scalar
from dlc.ops.reduce import ReduceMean, ReduceSum
from dlc.ops.shape import Reshape


class SquaredDifference(Pointwise):
    """y = (a - b)²."""

    a: Op
    b: Op

    def scalar(self, *values: Expr) -> Expr:
        a, b = values
        return (a - b) * (a - b)


class Standardized(Pointwise):
    """y = (x - centre) · factor."""

    x: Op
    centre: Op
    factor: Op

    def scalar(self, *values: Expr) -> Expr:
        x, centre, factor = values
        return (x - centre) * factor


class StandardizedScale(Pointwise):
    """y = (x - centre) · factor · scale."""

    x: Op
    centre: Op
    factor: Op
    scale: Op

    def scalar(self, *values: Expr) -> Expr:
        x, centre, factor, scale = values
        return (x - centre) * factor * scale


class CentredScale(Op):
    """y = (x - centre) · factor + offset, per channel of x[N, C, D…]; the others are [C].

    One op, so that x - centre is computed again where it is read again: it takes less time than memory does.
    """

    x: Op
    centre: Op
    factor: Op
    offset: Op

    def define(self, *params: Any) -> Comp:
        x, *vectors = params
        i = _channel_grid(x, vectors)
        centre, factor, offset = (v[i[1]] for v in vectors)
        return comp(i, (x[i] - centre) * factor + offset)


class CentredSum(Op):
    """y = Σ (x - centre) · a over all axes of x[N, C, D…] but the channels: [C]; without a, it is x - centre too."""

    x: Op
    centre: Op
    a: Op | None = None

    def define(self, *params: Any) -> Comp:
        x, centre, a = params
        i = _channel_grid(x, [centre])
        if a is not None and a.shape != x.shape:
            raise ShapeError(f"the factors must be of the shape of x: {a.type} and {x.type}")
        centred = x[i] - centre[i[1]]
        return comp((i[1],), centred * (centred if a is None else a[i]), sum=(i[0], *i[2:]))


def _channel_grid(x: Param, vectors: Sequence[Param]) -> tuple[Axis, ...]:
    """The axes of x[N, C, D…], of whose channels each of the vectors has an element."""
    if len(x.shape) < 2:
        raise ShapeError(f"x must have channels: {x.type}")
    for v in vectors:
        if v.shape != x.shape[1:2]:
            raise ShapeError(f"{x.type} takes a vector of {x.shape[1]} elements, one for each channel, not {v.type}")
    return grid(x.shape)


def inverse_deviation(variance: Op, epsilon: float) -> Op:
    """1 / √(variance + epsilon)."""
    return Reciprocal(Sqrt(Add(variance, scalar(epsilon, variance.dtype))))


def statistics(x: Op, axes: Sequence[int], epsilon: float) -> tuple[Op, Op]:
    """Mean and 1 / √(variance + epsilon) of x over `axes`, which stay as dimensions of 1."""
    mean = ReduceMean(x, axes=tuple(axes), keep=True)
    variance = ReduceMean(SquaredDifference(x, mean), axes=tuple(axes), keep=True)
    return mean, inverse_deviation(variance, epsilon)


def standardized_gradient(x: Op, axes: Sequence[int], epsilon: float, g: Op) -> tuple[Op, Op]:
    """The cotangent of x for `g`, that of x̂ = (x - mean) / √(variance + epsilon) over `axes`; and x̂ itself."""
    # dx = inverse · (g - mean g - x̂ · mean(g·x̂))
    mean, inverse = statistics(x, axes, epsilon)
    again = Standardized(x, mean, inverse)
    through_mean = ReduceMean(g, axes=tuple(axes), keep=True)
    through_variance = ReduceMean(Mul(g, again), axes=tuple(axes), keep=True)
    return Mul(Sub(Sub(g, through_mean), Mul(again, through_variance)), inverse), again


def summed(g: Op, kept: Sequence[int], like: Op) -> Op:
    """Σ g over all dimensions but `kept`, in the shape of `like`, which has as many elements."""
    assert math.prod(g.shape[d] for d in kept) == like.type.size, "what is kept has the elements of the operand"
    total = ReduceSum(g, axes=tuple(d for d in range(len(g.shape)) if d not in kept))
    return total if total.shape == like.shape else Reshape(total, to=like.shape)
