"""Maxima over the bins of regions of interest, whose bounds are whole elements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlc.base.allowed import Demand
from dlc.graph.op import Op
from dlc.kernel.define import Comp, ShapeError, axes, comp, grid, same
from dlc.kernel.expr import Const, Expr, apply, both, select
from dlc.ops.index import valid_place
from dlc.ops.pointwise import literal


class RoiRanges(Op):
    """y[r,q,:]: i64 = first element of bin q of region r along one dimension, and the one behind the last.

    rois[r] = item, x1, y1, x2, y2. The rounded products of bounds with `scale` are the outermost elements of a region.
    """

    rois: Op
    extent: int
    bins: int
    rows: bool
    scale: float = 1.0

    def define(self, *params: Any) -> tuple[Comp, ...]:
        (rois,) = params
        if len(rois.shape) != 2 or rois.shape[1] != 5 or not rois.dtype.is_float:
            raise ShapeError(f"regions {rois.type} must be [R, 5] of floating point")
        r, q = axes("r q", rois.shape[0], self.bins)
        first, last = (_rounded(rois[r, k] * self.scale) for k in ((2, 4) if self.rows else (1, 3)))
        size = apply("max", last - first + 1.0, 1.0) / float(max(self.bins, 1))
        number = apply(rois.dtype.name, q)
        ends = (apply("floor", number * size), apply("ceil", (number + 1.0) * size))
        out: list[Comp] = []
        for k, end in enumerate(ends):
            place = apply("min", apply("max", apply("i64", end + first), 0), self.extent)
            out.append(comp((r, q, Const(k)), place, into=(r.extent, q.extent, 2), over=(r, q)))
        return tuple(out)


def _rounded(x: Expr) -> Expr:
    """The nearest whole number, halves away from zero."""
    return select(x < 0.0, apply("ceil", x - 0.5), apply("floor", x + 0.5))


class RangeMax(Op):
    """y[r,c,…] = max of x[n,c,…] along `axis`, 2 or 3, from element ranges[r,q,0] up to, without, ranges[r,q,1].

    x is [N, C, H, W], and q takes the place of the axis in y; n is items[r], or r without items. The maximum of nothing
    is the lowest value.
    """

    x: Op
    ranges: Op
    items: Op | None = None
    axis: int = 2

    def define(self, *params: Any) -> Comp:
        x, ranges, items = params
        if len(x.shape) != 4 or self.axis not in (2, 3) or ranges.shape[2:] != (2,) or len(ranges.shape) != 3:
            raise ShapeError(f"ranges {ranges.type} along axis {self.axis} of {x.type}")
        if ranges.dtype.kind != "int":
            raise ShapeError(f"ranges are signed integers, not {ranges.dtype}")
        r, q = axes("r q", *ranges.shape[:2])
        n: Expr = r
        if items is None:
            same(x.shape[0], r.extent, "items and regions")
        elif items.shape != ranges.shape[:1] or items.dtype.kind != "int" or (r.extent and not x.shape[0]):
            raise ShapeError(f"items {items.type} of {x.type} for {r.extent} regions")
        else:
            n = valid_place(items[r], x.shape[0], items.dtype)
        c, i, k = grid((x.shape[1], x.shape[5 - self.axis], x.shape[self.axis]))
        place, index = ((k, i), (q, i)) if self.axis == 2 else ((i, k), (i, q))
        within = both(k >= apply("i64", ranges[r, q, 0]), k < apply("i64", ranges[r, q, 1]))
        return comp((r, c, *index), x[(n, c, *place)], max=(k,), where=within)

    def demands(self) -> Mapping[str, Demand]:
        return {} if self.items is None else {"items": Demand.rows(self.x.shape[0])}


class NonEmpty(Op):
    """y[r,c,p,q] = x[r,c,p,q], or 0 where one of the ranges rows[r,p] and columns[r,q] has no elements."""

    x: Op
    rows: Op
    columns: Op

    def define(self, *params: Any) -> Comp:
        x, rows, columns = params
        if len(x.shape) != 4 or rows.shape != (x.shape[0], x.shape[2], 2) or rows.dtype is not columns.dtype:
            raise ShapeError(f"ranges {rows.type} and {columns.type} of {x.type}")
        same(len(columns.shape), 3, "dimensions of ranges")
        if columns.shape != (x.shape[0], x.shape[3], 2):
            raise ShapeError(f"ranges {columns.type} of {x.type}")
        r, c, p, q = grid(x.shape)
        some = apply("and", rows[r, p, 0] < rows[r, p, 1], columns[r, q, 0] < columns[r, q, 1])
        return comp((r, c, p, q), select(some, x[r, c, p, q], literal(0, x.dtype)))


class RoiItems(Op):
    """y[r]: i64 = the item of the batch that region r is of: rois[r,0]."""

    rois: Op

    def define(self, *params: Any) -> Comp:
        (rois,) = params
        if len(rois.shape) != 2 or rois.shape[1] != 5:
            raise ShapeError(f"regions {rois.type} must be [R, 5]")
        (r,) = axes("r", rois.shape[0])
        return comp((r,), apply("i64", rois[r, 0]))


class MaxRoiPool(Op):
    """y[r,c,p,q] = max of x[item,c] over bin (p, q) of region r, 0 of a bin outside of it (ONNX MaxRoiPool 1)."""

    x: Op
    rois: Op
    bins: tuple[int, int] = (1, 1)
    scale: float = 1.0

    def expand(self) -> Op:
        same(len(self.x.shape), 4, "dimensions of an image")
        if min(self.bins) < 1:
            raise ShapeError(f"bins {self.bins}")
        (height, width), (p, q) = self.x.shape[2:], self.bins
        rows = RoiRanges(self.rois, extent=height, bins=p, rows=True, scale=self.scale)
        columns = RoiRanges(self.rois, extent=width, bins=q, rows=False, scale=self.scale)
        strips = RangeMax(self.x, columns, RoiItems(self.rois), axis=3)
        return NonEmpty(RangeMax(strips, rows, axis=2), rows, columns)
