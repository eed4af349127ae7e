"""Reductions along axes; axes count from the front. `keep` leaves a dimension of 1 for each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from dlc.graph.op import Op
from dlc.graph.tensor import Array
from dlc.kernel.define import Comp, ShapeError, comp, grid
from dlc.kernel.expr import Axis, Const, Expr, apply, select
from dlc.ops.elementwise import Add, Div, Equal, Exp, IsInf, Log, Mul, Sqrt, Sub, Where
from dlc.ops.pointwise import at, is_extreme, scalar
from dlc.ops.shape import Reshape


class _Reduce(Op, abstract=True):
    x: Op
    axes: tuple[int, ...] = ()
    keep: bool = False

    def _split(self, shape: tuple[int, ...]) -> tuple[tuple[Axis, ...], tuple[Axis, ...], tuple[Expr, ...]]:
        """All axes, the reduced ones, and the subscripts of the result."""
        if len(set(self.axes)) != len(self.axes) or any(not 0 <= a < len(shape) for a in self.axes):
            raise ShapeError(f"axes {self.axes} of a tensor with {len(shape)} dimensions")
        i = grid(shape)
        reduced = tuple(i[a] for a in sorted(self.axes))
        index = tuple(Const(0) if d in self.axes else a for d, a in enumerate(i) if self.keep or d not in self.axes)
        return i, reduced, index

    def _comp(self, kind: str, x: Any, body: Expr) -> Comp:
        i, reduced, index = self._split(x.shape)
        over = tuple(a for a in i if a not in reduced)
        into = tuple(a.extent if isinstance(a, Axis) else 1 for a in index)
        return comp(index, body, **{kind: reduced}, into=into, over=over)  # type: ignore[arg-type]

    def _numpy(self, reduction: Any, x: Array) -> Array:
        return reduction.reduce(x, axis=self.axes, keepdims=self.keep, dtype=x.dtype) if self.axes else x

    def _kept(self, y: Op) -> Op:
        """A value of the result's shape with the reduced dimensions as 1, to broadcast with x."""
        to = tuple(1 if d in self.axes else n for d, n in enumerate(self.x.shape))
        return y if y.shape == to else Reshape(y, to=to)

    @property
    def _count(self) -> int:
        return math.prod(self.x.shape[a] for a in self.axes)


class ReduceSum(_Reduce):
    """y = Σ x."""

    def define(self, *params: Any) -> Comp:
        (x,) = params
        return self._comp("sum", x, x[grid(x.shape)])

    def evaluate(self, *args: Array) -> Any:
        return self._numpy(np.add, args[0])


class ReduceProd(_Reduce):
    """y = Π x."""

    def define(self, *params: Any) -> Comp:
        (x,) = params
        return self._comp("prod", x, x[grid(x.shape)])

    def evaluate(self, *args: Array) -> Any:
        return self._numpy(np.multiply, args[0])


class ReduceMax(_Reduce):
    """y = max x; the smallest value of the type when there is nothing to reduce."""

    def define(self, *params: Any) -> Comp:
        (x,) = params
        return self._comp("max", x, x[grid(x.shape)])


class ReduceMin(_Reduce):
    """y = min x; the largest value of the type when there is nothing to reduce."""

    def define(self, *params: Any) -> Comp:
        (x,) = params
        return self._comp("min", x, x[grid(x.shape)])


class ReduceL1(_Reduce):
    """y = Σ |x|."""

    def define(self, *params: Any) -> Comp:
        (x,) = params
        return self._comp("sum", x, apply("abs", x[grid(x.shape)]))

    def evaluate(self, *args: Array) -> Any:
        return self._numpy(np.add, np.abs(args[0]))


class ReduceSumSquare(_Reduce):
    """y = Σ x²."""

    def define(self, *params: Any) -> Comp:
        (x,) = params
        return self._comp("sum", x, x[grid(x.shape)] * x[grid(x.shape)])

    def evaluate(self, *args: Array) -> Any:
        return self._numpy(np.add, args[0] * args[0])


class ReduceMean(_Reduce):
    """y = Σ x / n; integers round toward zero."""

    def expand(self) -> Op:
        return Div(ReduceSum(self.x, axes=self.axes, keep=self.keep), scalar(self._count, self.x.dtype))


class ReduceL2(_Reduce):
    """y = √Σ x²."""

    def expand(self) -> Op:
        return Sqrt(ReduceSumSquare(self.x, axes=self.axes, keep=self.keep))

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None] | None:
        # g · x / y, and 0 for a norm of 0, where the root's derivative is infinite.
        zero = scalar(0.0, self.x.dtype)
        y = self._kept(self)
        factors = (None if g is None else Where(Equal(y, zero), zero, Div(self._kept(g), y)) for g in seeds)
        return [None if f is None else Mul(self.x, f) for f in factors]


class ReduceLogSum(_Reduce):
    """y = ln Σ x."""

    def expand(self) -> Op:
        return Log(ReduceSum(self.x, axes=self.axes, keep=self.keep))


class ReduceLogSumExp(_Reduce):
    """y = ln Σ eˣ, computed relative to the maximum so that it does not overflow."""

    def expand(self) -> Op:
        # An infinite maximum is not subtracted: ∞ - ∞ is no number, and ln Σ is right without it.
        total = ReduceSum(Exp(Sub(self.x, self._top(keep=True))), axes=self.axes, keep=self.keep)
        return Add(Log(total), self._top(self.keep))

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None] | None:
        # g · e^(x - y), and 0 where all of x is -∞, which are as many as you like of no weight.
        y = self._kept(self)
        weights = Where(Equal(y, scalar(-math.inf, self.x.dtype)), scalar(0.0, self.x.dtype), Exp(Sub(self.x, y)))
        return [None if g is None else Mul(weights, self._kept(g)) for g in seeds]

    def _top(self, keep: bool) -> Op:
        top = ReduceMax(self.x, axes=self.axes, keep=keep)
        return Where(IsInf(top), scalar(0.0, self.x.dtype), top)


class IndexOf(Op):
    """y: i64 = the first (or last) index along `axis` at which x equals value, which has 1 there, or is NaN.

    Where there is none the result is a valid index all the same: the last (or first) one.
    """

    exact: ClassVar[bool] = True
    x: Op
    value: Op
    axis: int = 0
    keep: bool = True
    last: bool = False

    def define(self, *params: Any) -> Comp:
        x, value = params
        if not 0 <= self.axis < len(x.shape) or x.shape[self.axis] == 0:
            raise ShapeError(f"no index along axis {self.axis} of {x.type}")
        if value.shape != tuple(1 if d == self.axis else n for d, n in enumerate(x.shape)):
            raise ShapeError(f"value {value.type} for axis {self.axis} of {x.type}")
        i = grid(x.shape)
        k = i[self.axis]
        index = tuple(Const(0) if a is k else a for a in i if self.keep or a is not k)
        into = tuple(a.extent if isinstance(a, Axis) else 1 for a in index)
        over = tuple(a for a in i if a is not k)
        hit = is_extreme(x[i], at(value, i), x.dtype)
        found = select(hit, apply("i64", k), 0 if self.last else k.extent - 1)
        if self.last:
            return comp(index, found, max=(k,), into=into, over=over)
        return comp(index, found, min=(k,), into=into, over=over)

    def evaluate(self, *args: Array) -> Any:
        equal: Array = np.equal(*args)
        if self.x.dtype.is_float:
            equal |= np.isnan(args[0])
        end = equal.shape[self.axis] - 1
        turned: Array = np.flip(equal, self.axis) if self.last else equal
        steps: Array = np.argmax(turned, self.axis, keepdims=self.keep)
        seen: Array = np.logical_or.reduce(equal, axis=self.axis, keepdims=self.keep)
        found: Array = np.where(seen, steps, end)
        return end - found if self.last else found


class ArgMax(Op):
    """y: i64 = index of the largest x along `axis`; of equal ones the first, or the last. NaN counts as largest."""

    x: Op
    axis: int = 0
    keep: bool = True
    last: bool = False

    def expand(self) -> Op:
        top = ReduceMax(self.x, axes=(self.axis,), keep=True)
        return IndexOf(self.x, top, axis=self.axis, keep=self.keep, last=self.last)


class ArgMin(Op):
    """y: i64 = index of the smallest x along `axis`; of equal ones the first, or the last. NaN counts as smallest."""

    x: Op
    axis: int = 0
    keep: bool = True
    last: bool = False

    def expand(self) -> Op:
        low = ReduceMin(self.x, axes=(self.axis,), keep=True)
        return IndexOf(self.x, low, axis=self.axis, keep=self.keep, last=self.last)


class _Running(Op, abstract=True):
    """A reduction of the elements up to each one."""

    x: Op
    axis: int = 0
    exclusive: bool = False
    reverse: bool = False

    def _comp(self, kind: str, x: Any) -> Comp:
        if not 0 <= self.axis < len(x.shape):
            raise ShapeError(f"axis {self.axis} of {x.type}")
        i = grid(x.shape)
        k = Axis("k", x.shape[self.axis])
        low, high = (i[self.axis], k) if self.reverse else (k, i[self.axis])
        body = x[tuple(k if d == self.axis else a for d, a in enumerate(i))]
        return comp(i, body, **{kind: (k,)}, where=low < high if self.exclusive else low <= high)  # type: ignore[arg-type]


class CumSum(_Running):
    """y[i] = Σ x[k] for k <= i along `axis` (k < i when exclusive), or from the end when reverse."""

    def define(self, *params: Any) -> Comp:
        return self._comp("sum", params[0])

    def evaluate(self, *args: Array) -> Any:
        x = np.flip(args[0], self.axis) if self.reverse else args[0]
        total = np.cumsum(x, self.axis, dtype=x.dtype)
        total = total - x if self.exclusive and x.dtype.kind != "f" else total
        if self.exclusive and x.dtype.kind == "f":  # shifted, because (a + b) - b is not a
            total = np.roll(total, 1, self.axis)
            total[(slice(None),) * self.axis + (slice(0, 1),)] = 0
        return np.flip(total, self.axis) if self.reverse else total


class CumProd(_Running):
    """y[i] = Π x[k] for k <= i along `axis` (k < i when exclusive), or from the end when reverse."""

    def define(self, *params: Any) -> Comp:
        return self._comp("prod", params[0])
