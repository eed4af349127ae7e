"""Sliding windows over the spatial dimensions of x[N, C, D…]. `pads` holds all begins, then all ends; () means none.

With `ceil` the number of positions is rounded up, but every window starts in the data or in the padding before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from dlc.base.types import DType, i32
from dlc.graph.op import Op
from dlc.graph.tensor import Array
from dlc.kernel.define import Comp, ShapeError, comp, grid, inside
from dlc.kernel.expr import Axis, Expr, apply, both, select
from dlc.ops.elementwise import Div
from dlc.ops.pointwise import ceil_div, is_extreme, literal, scalar
from dlc.ops.reduce import ReduceMax, ReduceMean
from dlc.ops.window import defaulted, row_major, sliding, window_size


class _Windows(Op, abstract=True):
    """Windows of `kernel` elements, `stride` apart, their taps `dilation` apart."""

    x: Op
    window: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    ceil: bool = False

    def _figures(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Stride, pads, dilation and output extents per spatial dimension."""
        rank = len(self.x.shape) - 2
        if rank < 0 or len(self.window) != rank:
            raise ShapeError(f"a window of shape {list(self.window)} over {self.x.type}")
        stride = defaulted(self.stride, rank, 1, "stride")
        pads = defaulted(self.pads, 2 * rank, 0, "pads")
        dilation = defaulted(self.dilation, rank, 1, "dilation")
        out = tuple(
            window_size(e, self.window[d], stride[d], pads[d], pads[rank + d], dilation[d], self.ceil)
            for d, e in enumerate(self.x.shape[2:])
        )
        return stride, pads, dilation, out

    def _reduced(self, x: Any, kind: str) -> Comp:
        index, k, element, guard = self.taps(x)
        return comp(index, element, where=guard, **{kind: k})  # type: ignore[arg-type]

    def taps(self, x: Any) -> tuple[tuple[Axis, ...], tuple[Axis, ...], Expr, Expr | None]:
        """Subscripts of the result, those in the window, the element there, and where there is one."""
        stride, pads, dilation, out = self._figures()
        n, c = grid(x.shape[:2], "n")
        o, k = grid(out, "o"), grid(self.window, "k")
        place = tuple(o[d] * stride[d] + k[d] * dilation[d] - pads[d] for d in range(len(o)))
        # A window may leave the data through padding, or through the last position that `ceil` added.
        guard = inside(*zip(place, x.shape[2:], strict=True)) if any(pads) or self.ceil else None
        return (n, c, *o), k, x[n, c, *place], guard

    def _sliding(self, x: Array, fill: Any) -> Array:
        """The windows as a view [N, C, O…, K…]."""
        stride, pads, dilation, out = self._figures()
        rank = len(out)
        grown = list(pads)
        for d in range(rank):
            reach = (out[d] - 1) * stride[d] + (self.window[d] - 1) * dilation[d] + 1
            grown[rank + d] = max(pads[rank + d], reach - pads[d] - x.shape[d + 2])
        view = sliding(x, self.window, stride, grown, dilation, fill)
        return view[(slice(None), slice(None), *(slice(0, o) for o in out))]


class MaxPool(_Windows):
    """y[n,c,o] = max over the window's elements inside the data (ONNX MaxPool 12, first output)."""

    exact: ClassVar[bool] = True

    def define(self, *params: Any) -> Comp:
        return self._reduced(params[0], "max")

    def evaluate(self, *args: Array) -> Any:
        (x,) = args
        low = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        return self._sliding(x, low).max(tuple(range(-len(self.window), 0)), initial=low)

    def vjp(self, *seeds: Op | None) -> Sequence[Op | None] | None:
        # All to the first of equal elements, where a maximum shares: data that was cut off at 0 has many.
        first = MaxPlace(self.x, self, self.window, self.stride, self.pads, self.dilation, self.ceil)
        figures = self.window, self.stride, self.pads, self.dilation
        return [None if g is None else Unpool(g, first, self.x.shape, *figures) for g in seeds]


class MaxPlace(Op):
    """place[n,c,o]: i32 = number of the first tap of a max pool's window, in row-major order, at which x is y[n,c,o].

    In a window with NaN it is that of the first NaN. Where x is y nowhere the number is that of no tap: at least the
    size of the window.
    """

    x: Op
    y: Op
    window: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    ceil: bool = False

    def define(self, *params: Any) -> Comp:
        x, y = params
        pool = MaxPool(self.x, self.window, self.stride, self.pads, self.dilation, self.ceil)
        if y.type != pool.type:
            raise ShapeError(f"the maxima of {x.type} are {pool.type}, not {y.type}")
        index, k, element, guard = pool.taps(x)
        number = apply("i32", row_major(k, self.window))
        hit = is_extreme(element, y[index], x.dtype)
        return comp(index, select(hit, number, literal(math.prod(self.window), i32)), min=k, where=guard)


class Unpool(Op):
    """x[n,c,i…] = Σ y[n,c,o…] over the windows o whose tap number place[n,c,o…] lies at i; the adjoint of MaxPool.

    y and place, of any integers, are [N, C, O…], x has the shape `to`.
    """

    y: Op
    place: Op
    to: tuple[int, ...] = ()
    window: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()

    def define(self, *params: Any) -> Comp:
        y, place = params
        rank = len(self.to) - 2
        if rank < 0 or len(self.window) != rank or y.shape != place.shape or y.shape[:2] != self.to[:2]:
            raise ShapeError(f"{y.type} at {place.type} does not unpool to {list(self.to)} by {list(self.window)}")
        if math.prod(self.to) and not y.type.capacity:
            raise ShapeError(f"{y.type} has no windows to unpool to {list(self.to)}")
        stride = defaulted(self.stride, rank, 1, "stride")
        pads = defaulted(self.pads, 2 * rank, 0, "pads")
        dilation = defaulted(self.dilation, rank, 1, "dilation")
        n, c, *i = grid(self.to, "i")
        free = grid(self.window, "k")
        at: list[Expr] = [n, c]
        taps: list[Expr] = []
        guard: Expr | None = None
        for d, tap in enumerate(free):
            spot = i[d] + pads[d]
            if _tiles(self.window[d], stride[d], dilation[d], self.to[d + 2] + pads[d], y.shape[d + 2]):
                at.append(spot // stride[d])
                taps.append(spot % stride[d])
                continue
            reach = spot - tap * dilation[d]
            at.append(reach // stride[d])
            taps.append(tap)
            if stride[d] > 1:
                guard = both(guard, apply("eq", reach % stride[d], 0))
            guard = both(guard, inside((at[-1], y.shape[d + 2])))
        mine = apply("eq", place[tuple(at)], apply(place.dtype.name, row_major(taps, self.window)))
        value = select(mine, y[tuple(at)], literal(0, y.dtype))
        summed = tuple(k for k in free if k in taps)
        return comp((n, c, *i), value, sum=summed, where=guard) if summed else comp((n, c, *i), value)


def _tiles(window: int, stride: int, dilation: int, reach: int, windows: int) -> bool:
    """Whether every position below `reach` lies in exactly one window, and all of these exist."""
    return window == stride and dilation == 1 and -(-reach // stride) <= windows


class TapIndex(Op):
    """index[n,c,o…]: i64 = the row-major number, in data of shape `of`, of the tap place[n,c,o…] of window o.

    With `columns` the elements of a channel are numbered with the first spatial dimension varying fastest.
    """

    place: Op
    of: tuple[int, ...] = ()
    window: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    columns: bool = False

    def define(self, *params: Any) -> Comp:
        (place,) = params
        rank = len(self.of) - 2
        if rank < 0 or len(self.window) != rank or place.shape[:2] != self.of[:2] or len(place.shape) != rank + 2:
            raise ShapeError(f"places {place.type} of windows {list(self.window)} in {list(self.of)}")
        stride = defaulted(self.stride, rank, 1, "stride")
        pads = defaulted(self.pads, 2 * rank, 0, "pads")
        dilation = defaulted(self.dilation, rank, 1, "dilation")
        n, c, *o = grid(place.shape)
        rest: Expr = apply("i64", place[(n, c, *o)])
        at: list[Expr] = []
        for d in reversed(range(rank)):
            at.insert(0, o[d] * stride[d] - pads[d] + rest % self.window[d] * dilation[d])
            rest = rest // self.window[d]
        extents = list(self.of[2:])
        if self.columns:
            at, extents = at[::-1], extents[::-1]
        return comp((n, c, *o), row_major([n, c, *at], [*self.of[:2], *extents]))


class SumPool(_Windows):
    """y[n,c,o] = Σ over the window's elements inside the data."""

    def define(self, *params: Any) -> Comp:
        return self._reduced(params[0], "sum")

    def evaluate(self, *args: Array) -> Any:
        (x,) = args
        return self._sliding(x, 0).sum(tuple(range(-len(self.window), 0)), dtype=x.dtype)


class PoolSize(Op):
    """y[1,1,o…] = how many taps of window o meet data: a constant that depends on sizes only.

    `extents` is the data's, in coordinates where window o starts at o·stride - begin; what counts as data is
    [-before, extent + behind).
    """

    extents: tuple[int, ...]
    window: tuple[int, ...]
    stride: tuple[int, ...]
    begin: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    behind: tuple[int, ...]
    count: tuple[int, ...]
    to: DType

    def define(self, *params: Any) -> Comp:
        i = grid((1, 1, *self.count))
        total: Expr = apply("i64", 1)
        for d, o in enumerate(i[2:]):
            start = o * self.stride[d] - self.begin[d]
            first = apply("max", ceil_div(-(start + self.before[d]), self.dilation[d]), 0)
            stop = ceil_div(self.extents[d] + self.behind[d] - start, self.dilation[d])
            total = total * apply("max", apply("min", stop, self.window[d]) - first, 1)
        return comp(i, apply(self.to.name, total))


class AveragePool(_Windows):
    """y[n,c,o] = mean over the window's elements (ONNX AveragePool 19).

    Elements of the padding count as zeros with `count_pad`, else not at all; what lies behind the padding never counts.
    """

    count_pad: bool = False

    def expand(self) -> Op:
        stride, pads, dilation, out = self._figures()
        rank = len(out)
        total = SumPool(self.x, self.window, stride, pads, dilation, self.ceil)
        if not self.ceil and (self.count_pad or not any(pads)):
            return Div(total, scalar(math.prod(self.window), self.x.dtype))
        shown = pads if self.count_pad else (0,) * (2 * rank)
        size = PoolSize(
            extents=self.x.shape[2:],
            window=self.window,
            stride=stride,
            begin=pads[:rank],
            dilation=dilation,
            before=shown[:rank],
            behind=shown[rank:],
            count=out,
            to=self.x.dtype,
        )
        return Div(total, size)


class GlobalAveragePool(Op):
    """y[n,c,1…] = mean over all spatial dimensions."""

    x: Op

    def expand(self) -> Op:
        return ReduceMean(self.x, axes=tuple(range(2, len(self.x.shape))), keep=True)


class GlobalMaxPool(Op):
    """y[n,c,1…] = max over all spatial dimensions."""

    x: Op

    def expand(self) -> Op:
        return ReduceMax(self.x, axes=tuple(range(2, len(self.x.shape))), keep=True)
