"""Ops whose subscripts are data, or that compare subscripts.

A negative index counts from the end. An index that is out of range all the same reads the nearest element:
subscripts come from the user's input, and no input may make a program read outside its tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from dlc.base.allowed import Demand
from dlc.base.extents import Dim
from dlc.base.types import DType, i64
from dlc.graph.op import Op
from dlc.graph.tensor import Array
from dlc.kernel.define import Comp, ShapeError, comp, grid, inside, nearest, same
from dlc.kernel.expr import TRUE, Axis, Expr, apply, lift, select
from dlc.ops.pointwise import literal


def valid_place(index: Expr, extent: int, of: DType) -> Expr:
    """A subscript from data of a type, made valid."""
    index = apply("i64", index) if isinstance(extent, Dim) and of is not i64 else _wide(index, of)
    wrapped = select(index < 0, index + extent, index)
    return nearest(wrapped, extent)


def _wide(index: Expr, of: DType) -> Expr:
    """A subscript in a type that holds every extent."""
    return apply("i64", index) if of.itemsize < 4 else index


def _valid(index: Array, extent: int) -> Array:
    wide = index.astype(np.int64)
    return np.clip(np.where(wide < 0, wide + extent, wide), 0, extent - 1)


def _integers(index: Op) -> None:
    if not index.dtype.is_integer or index.dtype.kind != "int":
        raise ShapeError(f"indices must be signed integers, not {index.dtype}")


def _check_rows(x: Op, indices: Op, *axes: int) -> None:
    """Raises ShapeError: there are indices along an axis, but nothing that they could mean."""
    if indices.type.capacity and (none := [d for d in axes if x.shape[d] == 0]):
        raise ShapeError(f"{x.type} has no elements along axis {none[0]}")


def _check_elements(x: Op, indices: Op, axis: int) -> None:
    """Raises ShapeError: indices, one for each element along `axis`, reach behind x in a dimension."""
    for d, (own, other) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if (d != axis and own < other) or (own == 0 and other):
            raise ShapeError(f"indices {indices.type} leave {x.type} in dimension {d}")


class Gather(Op):
    """y = x with dimension `axis` replaced by those of indices: y[…,j…,…] = x[…,indices[j…],…] (numpy.take)."""

    exact: ClassVar[bool] = True
    x: Op
    indices: Op
    axis: int = 0

    def define(self, *params: Any) -> Comp:
        x, indices = params
        _integers(self.indices)
        if not 0 <= self.axis < len(x.shape):
            raise ShapeError(f"axis {self.axis} of {x.type}")
        _check_rows(self.x, self.indices, self.axis)
        i, j = grid(x.shape, "i"), grid(indices.shape, "j")
        before, after = i[: self.axis], i[self.axis + 1 :]
        place = valid_place(indices[j], x.shape[self.axis], indices.dtype)
        return comp((*before, *j, *after), x[(*before, place, *after)])

    def demands(self) -> Mapping[str, Demand]:
        return {"indices": Demand.rows(self.x.shape[self.axis])}

    def evaluate(self, *args: Array) -> Any:
        return np.take(args[0], _valid(args[1], args[0].shape[self.axis]), self.axis)


class Pick(Gather):
    """y as Gather has it, by subscripts that a program computes itself: they restrict no input of it."""

    def demands(self) -> Mapping[str, Demand]:
        return {}


class GatherElements(Op):
    """y[i…] = x[i…] with subscript `axis` replaced by indices[i…]; y has the shape of indices."""

    exact: ClassVar[bool] = True
    x: Op
    indices: Op
    axis: int = 0

    def define(self, *params: Any) -> Comp:
        x, indices = params
        _integers(self.indices)
        same(len(x.shape), len(indices.shape), "ranks")
        if not 0 <= self.axis < len(x.shape):
            raise ShapeError(f"axis {self.axis} of {x.type}")
        _check_elements(self.x, self.indices, self.axis)
        i = grid(indices.shape)
        place = valid_place(indices[i], x.shape[self.axis], indices.dtype)
        return comp(i, x[tuple(place if d == self.axis else a for d, a in enumerate(i))])

    def demands(self) -> Mapping[str, Demand]:
        return {"indices": Demand.rows(self.x.shape[self.axis])}

    def evaluate(self, *args: Array) -> Any:
        x, indices = args
        part = x[tuple(slice(None) if d == self.axis else slice(0, e) for d, e in enumerate(indices.shape))]
        return np.take_along_axis(part, _valid(indices, x.shape[self.axis]), self.axis)


class GatherNd(Op):
    """y[b…,j…,r…] = x[b…, indices[b…,j…,:]…, r…] with `batch` leading dimensions b in common (ONNX GatherND 13)."""

    exact: ClassVar[bool] = True
    x: Op
    indices: Op
    batch: int = 0

    def define(self, *params: Any) -> Comp:
        x, indices = params
        _integers(self.indices)
        if not indices.shape or not 0 <= self.batch < min(len(x.shape), len(indices.shape)):
            raise ShapeError(f"{self.batch} batch dimensions of {x.type} and {indices.type}")
        width = indices.shape[-1]
        if self.batch + width > len(x.shape) or width == 0:
            raise ShapeError(f"{width} subscripts for {x.type} with {self.batch} batch dimensions")
        for d in range(self.batch):
            same(x.shape[d], indices.shape[d], f"batch dimensions {d}")
        _check_rows(self.x, self.indices, *range(self.batch, self.batch + width))
        j = grid(indices.shape[:-1], "j")
        rest = grid(x.shape[self.batch + width :], "r")
        places = [valid_place(indices[(*j, k)], x.shape[self.batch + k], indices.dtype) for k in range(width)]
        return comp((*j, *rest), x[(*j[: self.batch], *places, *rest)])

    def demands(self) -> Mapping[str, Demand]:
        width = self.indices.shape[-1]
        return {"indices": Demand.rows(*self.x.shape[self.batch : self.batch + width])}

    def evaluate(self, *args: Array) -> Any:
        x, indices = args
        outer = np.ogrid[tuple(slice(0, n) for n in indices.shape[:-1])][: self.batch]
        places = tuple(_valid(indices[..., k], x.shape[self.batch + k]) for k in range(indices.shape[-1]))
        return x[(*outer, *places)]


class OneHot(Op):
    """y = values[1] where subscript `axis` equals the index (wrapped if negative), else values[0] (ONNX OneHot 11).

    indices[d…], values[2] → y with a new dimension of `depth` at `axis`; an index out of range gives no 1 at all.
    """

    indices: Op
    values: Op
    depth: int = 1
    axis: int = 0

    def define(self, *params: Any) -> Comp:
        indices, values = params
        _integers(self.indices)
        same(self.values.type.size, 2, "values (off and on)")
        if not 0 <= self.axis <= len(indices.shape):
            raise ShapeError(f"axis {self.axis} of a result with {len(indices.shape) + 1} dimensions")
        i = grid((*indices.shape[: self.axis], self.depth, *indices.shape[self.axis :]))
        index = apply("i64", indices[tuple(a for d, a in enumerate(i) if d != self.axis)])
        hot = apply("eq", select(index < 0, index + self.depth, index), i[self.axis])
        return comp(i, select(hot, values[1], values[0]))


class Trilu(Op):
    """The upper (or lower) triangle of the last two dimensions, 0 elsewhere; diagonal `k` is the last one kept.

    Diagonals count from the main one upward; `by`, a single integer, is added to k.
    """

    exact: ClassVar[bool] = True
    x: Op
    upper: bool = True
    k: int = 0
    by: Op | None = None

    def define(self, *params: Any) -> Comp:
        x, by = params
        if len(x.shape) < 2:
            raise ShapeError(f"{x.type} is not a matrix")
        i = grid(x.shape)
        diagonal: Expr = i[-1] - i[-2]
        last: Expr = lift(self.k)
        if by is not None:
            _integers(self.by or self.x)
            same(by.type.size, 1, "numbers of diagonals")
            last = apply("i64", by[(0,) * len(by.shape)]) + self.k
        keep = diagonal >= last if self.upper else diagonal <= last
        return comp(i, select(keep, x[i], literal(0, x.dtype)))

    def evaluate(self, *args: Array) -> Any:
        k = self.k if self.by is None else self.k + int(args[1].reshape(()))
        return np.triu(args[0], k) if self.upper else np.tril(args[0], k)


class Overwrite(Op):
    """y = past with the elements of `update` along `axis` from start[b] on, b the first dimension.

    As ONNX TensorScatter 24: what reaches past the end goes on at the beginning if `circular`, else it is dropped.
    """

    past: Op
    update: Op
    start: Op
    axis: int = 1
    circular: bool = False

    def define(self, *params: Any) -> Comp:
        past, update, start = params
        _integers(self.start)
        same(len(past.shape), len(update.shape), "ranks")
        if not 0 < self.axis < len(past.shape) or start.shape != past.shape[:1]:
            raise ShapeError(f"updates along axis {self.axis} of {past.type} from {start.type} on")
        _check_elements(self.past, self.update, self.axis)
        count, extent = update.shape[self.axis], past.shape[self.axis]
        whole = tuple(count if d == self.axis else e for d, e in enumerate(past.shape))
        if update.shape != whole or count > extent:
            raise ShapeError(f"{past.type} is not updated by {update.type} along axis {self.axis}")
        i = grid(past.shape)
        if not count:
            return comp(i, past[i])
        place = i[self.axis] - apply("i64", start[i[0]])
        place = place % extent if self.circular else place
        valid = apply("min", apply("max", place, 0), count - 1)
        new = update[tuple(valid if d == self.axis else a for d, a in enumerate(i))]
        return comp(i, select(inside((place, count)) or TRUE, new, past[i]))


class ScatterNd(Op):
    """y = x with y[indices[j…,:]…, r…] replaced by (or, with `reduce`, combined with) updates[j…, r…].

    ONNX ScatterND 18. Without reduction every element must be written at most once.
    """

    x: Op
    indices: Op
    updates: Op
    reduce: str = ""

    def define(self, *params: Any) -> tuple[Comp, Comp]:
        x, indices, updates = params
        _integers(self.indices)
        width = indices.shape[-1] if indices.shape else 0
        if not 0 < width <= len(x.shape):
            raise ShapeError(f"{width} subscripts for {x.type}")
        _check_rows(self.x, self.indices, *range(width))
        if updates.shape != (*indices.shape[:-1], *x.shape[width:]):
            raise ShapeError(f"updates {updates.type} for {x.type} at {indices.type}")
        j, rest = grid(indices.shape[:-1], "j"), grid(x.shape[width:], "r")
        places = [valid_place(indices[(*j, k)], x.shape[k], indices.dtype) for k in range(width)]
        return _scattered(x, (*places, *rest), (*j, *rest), updates[(*j, *rest)], self.reduce)

    def demands(self) -> Mapping[str, Demand]:
        return {"indices": Demand.rows(*self.x.shape[: self.indices.shape[-1]])}


class ScatterElements(Op):
    """y = x with y[i…], subscript `axis` replaced by indices[i…], replaced by (or combined with) updates[i…].

    ONNX ScatterElements 18. Without reduction every element must be written at most once.
    """

    x: Op
    indices: Op
    updates: Op
    axis: int = 0
    reduce: str = ""

    def define(self, *params: Any) -> tuple[Comp, Comp]:
        x, indices, updates = params
        _integers(self.indices)
        same(len(x.shape), len(indices.shape), "ranks")
        if updates.shape != indices.shape or not 0 <= self.axis < len(x.shape):
            raise ShapeError(f"updates {updates.type} at {indices.type} along axis {self.axis} of {x.type}")
        _check_elements(self.x, self.indices, self.axis)
        i = grid(indices.shape)
        place = valid_place(indices[i], x.shape[self.axis], indices.dtype)
        index = tuple(place if d == self.axis else a for d, a in enumerate(i))
        return _scattered(x, index, i, updates[i], self.reduce)

    def demands(self) -> Mapping[str, Demand]:
        return {"indices": Demand.rows(self.x.shape[self.axis])}


def _scattered(x: Any, index: tuple[Expr, ...], axes: tuple[Axis, ...], body: Expr, reduce: str) -> tuple[Comp, Comp]:
    if reduce not in ("", "add", "mul", "max", "min"):
        raise ShapeError(f"unknown reduction {reduce!r}")
    copied = comp(grid(x.shape), x[grid(x.shape)])
    kind: Any = reduce or None
    return copied, Comp(index, axes, body, kind, None, x.shape)
