"""Factors of contractions in panels: the columns of one panel next to each other, panel after panel.

    w[f,c,kh,kw]   →   w'[f//16,kh,kw,c,f%16]

A constant factor's panels are a constant expression. Those of a factor that changes between calls, as weights in
training do, are made by a call of their own, once for all the products that read each element.
"""

from __future__ import annotations

import math

from dlc.base.types import Type
from dlc.graph.op import Op
from dlc.graph.structure import Call
from dlc.kernel.expr import Apply, Axis, Expr, Load, apply, axes_in, select
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.roles import roles, spatial_axes
from dlc.ops.shape import Concat, Pad, Reshape, Slice, Transpose

USES = 16
"""How often each element of a changing factor's panels must be read, so that storing them costs less than its place."""


def changing_plan(nest: Nest, a: Load, b: Load, type: Type, panel: int) -> tuple[int, ...] | None:
    """The order of dimensions, columns first, in which panels of a changing factor `b` are worth making; else None."""
    r = roles(nest, a, b)
    rank = type.rank
    if type.is_open or len(r.columns) != 1 or not type.dtype.is_float:
        return None
    (column,) = r.columns
    # Panels of few columns are mostly zeros, which take as long to write and to multiply.
    stored = type.capacity * -(-column.extent // panel) * panel // column.extent
    if nest.points < USES * stored:
        return None
    found = [d for d, i in enumerate(b.index) if column in axes_in(i)]
    if len(found) != 1 or b.index[found[0]] != column or column.extent != type.shape[found[0]]:
        return None
    if found[0] == rank - 1 or not (spatial_axes(nest) or len(r.rows) > 1):
        return None
    (first,) = found
    window = set(r.window) | spatial_axes(nest)
    slide = [d for d, i in enumerate(b.index) if d != first and set(axes_in(i)) & window]
    rest = [d for d in range(rank) if d != first and d not in slide]
    return (first, *slide, *rest)


def packing(value: Op, order: tuple[int, ...], panel: int) -> Call:
    """The call that stores a value in panels of `panel` columns, zeros behind the last."""
    shape = value.type.shape
    first, *others = order
    columns = shape[first]
    block, lane = Axis("b", -(-columns // panel)), Axis("l", panel)
    axes = {d: Axis(f"d{d}", shape[d]) for d in others}
    column = block * panel + lane
    source = Param("x", value.type)
    body: Expr = source[tuple(column if d == first else axes[d] for d in range(len(shape)))]
    if columns % panel:
        body = select(apply("lt", column, columns), body, 0.0)
    result = Param("r", Type(value.type.dtype, (block.extent, *(shape[d] for d in others), panel)))
    # Neighbours in memory are read one after the other; each store fills a line of the cache wherever it goes.
    near = sorted(others, key=lambda d: -math.prod(shape[d + 1 :]))
    nest = Nest("r", (block, *(axes[d] for d in others), lane), (block, *(axes[d] for d in near), lane), body)
    return Call(Kernel.canonical((source,), (result,), (nest,)), (value,))


def packed(weights: Op, perm: tuple[int, ...], panel: int) -> Op:
    """The factor's value in its new order, as a constant expression."""
    value = weights if perm == tuple(range(len(perm))) else Transpose(weights, perm)
    if not panel:
        return value
    columns = value.shape[0]
    whole = columns - columns % panel
    parts = [_split(_rows(value, 0, whole), panel)] if whole else []
    if whole < columns:  # a part of its own, so that zeros behind a large table do not take a copy of it
        last = _rows(value, whole, columns)
        pads = (*([0] * len(value.shape)), panel - columns % panel, *([0] * (len(value.shape) - 1)))
        parts.append(_split(Pad(last, pads=pads), panel))
    return parts[0] if len(parts) == 1 else Concat(tuple(parts), axis=0)


def _rows(value: Op, start: int, end: int) -> Op:
    """Rows of a value from `start` to before `end`."""
    rows, *rest = value.shape
    starts = (start, *([0] * len(rest)))
    return value if end - start == rows else Slice(value, starts=starts, sizes=(end - start, *rest))


def _split(value: Op, panel: int) -> Op:
    """Rows in panels of `panel`, which divides their number."""
    rows, *rest = value.shape
    split = Reshape(value, to=(rows // panel, panel, *rest))
    return Transpose(split, (0, *range(2, len(rest) + 2), 1))


def packed_index(b: Load, perm: tuple[int, ...], panel: int) -> tuple[Expr, ...]:
    """Where panels of a factor hold what `b` reads of it."""
    moved = tuple(b.index[d] for d in perm)
    if not panel:
        return moved
    column, *rest = moved
    return (column // panel, *rest, column % panel)


def in_words(value: Op, size: int) -> Op:
    """Panels with `size` terms of a column next to each other: [..., k, lane] as [..., k//size, lane, k%size]."""
    *outer, terms, lanes = value.shape
    rank = len(outer)
    split = Reshape(value, to=(*outer, terms // size, size, lanes))
    return Transpose(split, (*range(rank + 1), rank + 2, rank + 1))


def words_index(index: tuple[Expr, ...], size: int) -> tuple[Expr, ...]:
    """Where panels in words hold what is at `index` of panels."""
    *outer, term, lane = index
    return (*outer, term // size, lane, term % size)


def reads_panels(nest: Nest, load: Load) -> bool:
    """Whether a product reads a tensor as panels: `w[f//16, …, f%16]`."""
    match load.index[:1], load.index[-1:]:
        case (Apply("floordiv", (x, p)),), (Apply("mod", (y, q)),):
            return nest.reduce is not None and x == y and p == q
        case _:
            return False
