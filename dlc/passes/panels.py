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
from dlc.ops.shape import Pad, Reshape, Transpose

USES = 128
"""How often each element of a changing factor must be read, so that storing it once more is little in comparison."""


def changing_plan(nest: Nest, a: Load, b: Load, type: Type) -> tuple[int, ...] | None:
    """The order of dimensions in which panels of a changing factor `b` are worth making, columns first; else None."""
    r = roles(nest, a, b)
    rank = type.rank
    if len(r.columns) != 1 or nest.points < USES * type.size or not type.dtype.is_float:
        return None
    (column,) = r.columns
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
    columns, *rest = value.shape
    short = -columns % panel
    if short:
        value = Pad(value, pads=(*([0] * len(value.shape)), short, *([0] * len(rest))))
    split = Reshape(value, to=((columns + short) // panel, panel, *rest))
    return Transpose(split, (0, *range(2, len(rest) + 2), 1))


def packed_index(b: Load, perm: tuple[int, ...], panel: int) -> tuple[Expr, ...]:
    """Where panels of a factor hold what `b` reads of it."""
    moved = tuple(b.index[d] for d in perm)
    if not panel:
        return moved
    column, *rest = moved
    return (column // panel, *rest, column % panel)


def reads_panels(nest: Nest, load: Load) -> bool:
    """Whether a product reads a tensor as panels: `w[f//16, …, f%16]`."""
    match load.index[:1], load.index[-1:]:
        case (Apply("floordiv", (x, p)),), (Apply("mod", (y, q)),):
            return nest.reduce is not None and x == y and p == q
        case _:
            return False
