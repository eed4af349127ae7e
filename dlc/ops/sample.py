"""Images between their elements: at places that are data, by the nearest element, linearly or by cubic convolution.

A place is a coordinate for each spatial dimension in which element 0 is at 0, element 1 at 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from dlc.base.allowed import Demand
from dlc.graph.op import Op
from dlc.kernel.define import Comp, ShapeError, axes, comp, grid, inside, nearest, same
from dlc.kernel.expr import Axis, Expr, apply, both, select
from dlc.ops.index import valid_place

Mode = Literal["nearest", "linear", "cubic"]
Padding = Literal["zeros", "border", "reflection", "mirror", "near"]
"""What is outside the data: zeros; the nearest element; the data reflected about its edge, half an element outside the
outermost one, or about that element itself; or the nearest element up to a distance of 1, and zeros beyond."""
_TAPS: Final[Mapping[str, int]] = {"nearest": 1, "linear": 2, "cubic": 4}
_CUBIC: Final = -0.75
"""The coefficient a of Keys' cubic convolution."""


class SampleAt(Op):
    """y[b,c,o…] = Σ Π_d w_d · x[n,c,i…] over the elements i around at[b,o…,:], or the maximum of these products.

    x is [N, C, D…], `at` [B, O…, rank]; n is b, or batch[b] if it is given. The weights w are those of `mode`.
    """

    x: Op
    at: Op
    batch: Op | None = None
    mode: Mode = "linear"
    padding: Padding = "zeros"
    reduce: Literal["sum", "max"] = "sum"

    def define(self, *params: Any) -> Comp:
        x, at, batch = params
        rank = len(x.shape) - 2
        if rank < 1 or not at.shape or at.shape[-1] != rank or len(at.shape) < 2 or not at.dtype.is_float:
            raise ShapeError(f"places {at.type} in {x.type}")
        b, *o = grid(at.shape[:-1], "o")
        n: Expr = b
        if batch is None:
            same(b.extent, x.shape[0], "items of the batch and of the places")
        elif len(batch.shape) != 1 or batch.shape != at.shape[:1] or batch.dtype.kind != "int":
            raise ShapeError(f"items {batch.type} for places {at.type}")
        else:
            n = valid_place(batch[b], x.shape[0], batch.dtype)
        if self.padding != "zeros" and at.type.capacity and not all((x.shape[0], *x.shape[2:])):
            raise ShapeError(f"{x.type} has no elements to sample")
        (c,) = axes("c", x.shape[1])
        taps = grid((_TAPS[self.mode],) * rank, "t")
        index: list[Expr] = []
        weight: Expr | None = None
        guard: Expr | None = None
        for d, (tap, extent) in enumerate(zip(taps, x.shape[2:], strict=True)):
            place: Expr = at[(b, *o, d)]
            if self.padding == "near":
                guard = both(guard, both(place >= -1.0, place <= float(extent)))
                place = _clipped(place, extent)
            first = apply("round" if self.mode == "nearest" else "floor", place)
            number = apply("i64", first) + tap - (1 if self.mode == "cubic" else 0)
            if self.padding == "zeros":
                guard = both(guard, inside((number, extent)))
            index.append(number if self.padding == "zeros" else _within(number, extent, self.padding))
            if self.mode != "nearest":
                own = _weight(place - first, tap, self.mode)
                weight = own if weight is None else weight * own
        body: Expr = x[(n, c, *index)]
        if weight is not None:
            body = body * (weight if at.dtype is x.dtype else apply(x.dtype.name, weight))
        if guard is not None and self.padding == "near":
            body, guard = select(guard, body, 0.0), None
        if self.mode == "nearest":
            return comp((b, c, *o), body, where=guard)
        if self.reduce == "max":
            return comp((b, c, *o), body, max=taps, where=guard)
        return comp((b, c, *o), body, sum=taps, where=guard)

    def demands(self) -> Mapping[str, Demand]:
        return {} if self.batch is None else {"batch": Demand.rows(self.x.shape[0])}


def _clipped(place: Expr, extent: int) -> Expr:
    """The nearest coordinate of an element; at the outermost ones the derivative is 1."""
    last = float(extent - 1)
    return select(place < 0.0, 0.0, select(place > last, last, place))


def _within(number: Expr, extent: int, padding: Padding) -> Expr:
    """The element that stands for one that may be outside."""
    if extent == 1 or padding in ("border", "near"):
        return nearest(number, extent)
    period = 2 * extent if padding == "reflection" else 2 * (extent - 1)
    turned = number % period
    folded = apply("min", turned, period - turned - (1 if padding == "reflection" else 0))
    return apply("min", folded, extent - 1)  # which it is, but intervals do not know that the two belong together


def _weight(f: Expr, tap: Axis, mode: Mode) -> Expr:
    """The weight of a tap for a place at a fraction f behind the element before it."""
    if mode == "linear":
        return select(apply("eq", tap, 0), 1.0 - f, f)
    left = select(apply("eq", tap, 0), _far(f + 1.0), _near(f))
    return select(tap < 2, left, select(apply("eq", tap, 2), _near(1.0 - f), _far(2.0 - f)))


def _near(d: Expr) -> Expr:
    """Cubic convolution up to a distance of 1. Keys 1981, "Cubic convolution interpolation …"."""
    return (d * (_CUBIC + 2) - (_CUBIC + 3)) * d * d + 1.0


def _far(d: Expr) -> Expr:
    """Cubic convolution at a distance from 1 to 2."""
    return ((d * _CUBIC - 5 * _CUBIC) * d + 8 * _CUBIC) * d - 4 * _CUBIC


class GridPlaces(Op):
    """at[n,o…,d]: the places in data of shape `extents` that a grid [N, O…, rank] of numbers from -1 to 1 means.

    -1 and 1 are the outermost elements with `aligned`, else half an element farther out. A grid names its dimensions
    from the last one on. Places outside the data are those that `padding` puts in their place.
    """

    points: Op
    extents: tuple[int, ...] = ()
    aligned: bool = False
    mode: Mode = "linear"
    padding: Padding = "zeros"

    def define(self, *params: Any) -> tuple[Comp, ...]:
        (points,) = params
        rank = len(self.extents)
        if rank < 1 or len(points.shape) < 2 or points.shape[-1] != rank or not points.dtype.is_float:
            raise ShapeError(f"a grid {points.type} over {list(self.extents)}")
        o = grid(points.shape[:-1], "o")
        return tuple(
            comp((*o, d), self._place(points[(*o, rank - 1 - d)], extent), into=points.shape, over=o)
            for d, extent in enumerate(self.extents)
        )

    def _place(self, at: Expr, extent: int) -> Expr:
        unit = at + 1.0
        place = unit * 0.5 * float(extent - 1) if self.aligned else (unit * float(extent) - 1.0) * 0.5
        if self.mode == "nearest":
            place = apply("round", place)
        if self.padding in ("border", "near"):
            return _clipped(place, extent)
        if self.padding == "zeros":
            return place
        low, high = (0.0, extent - 1.0) if self.padding == "mirror" else (-0.5, extent - 0.5)
        if high <= low:
            return place * 0.0
        span = high - low
        turned = apply("fmod", apply("abs", place - low), 2 * span)
        folded = select(turned > span, 2 * span - turned, turned) + low
        return select(apply("or", place < low, place > high), folded, place)


class GridSample(Op):
    """y[n,c,o…] = x[n,c,…] at the places that points[n,o…,:] means (ONNX GridSample 22)."""

    x: Op
    points: Op
    mode: Mode = "linear"
    padding: Literal["zeros", "border", "reflection"] = "zeros"
    aligned: bool = False

    def expand(self) -> Op:
        padding: Padding = "mirror" if self.padding == "reflection" and self.aligned else self.padding
        extents = self.x.shape[2:]
        at = GridPlaces(self.points, extents=extents, aligned=self.aligned, mode=self.mode, padding=padding)
        return SampleAt(self.x, at, mode=self.mode, padding=padding)
