"""Short transforms of both dimensions of a tile as straight-line sums of vectors, one dimension after the other.

    half = R·x          for each column v: half[·,v] = R·x[·,v]
    y = half·Cᵀ         for each row i:    y[i,·] = C·half[i,·]

`Transforms` is the schedule of a nest that does nothing else, as of weights that change between calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count

from dlc.base.types import Type, f32
from dlc.kernel.expr import Axis, Const, Expr, Load
from dlc.kernel.loops.program import For, Lanes, Let, Local, Stmt, Store, loop, wrap
from dlc.kernel.schedules import coefficients
from dlc.kernel.schedules.buffers import buffer
from dlc.kernel.schedules.choice import Applied, Choice, Place
from dlc.kernel.schedules.flat import at, flat_expr, offset
from dlc.kernel.schedules.lanes import vectorise
from dlc.kernel.schedules.machine import LEAST_LANES, Machine
from dlc.kernel.schedules.transformed import Transform
from dlc.kernel.schedules.unfit import Unfit, require
from dlc.kernel.simplify import simplify


@dataclass(frozen=True)
class Vectors:
    """Vectors of so many lanes, with names that no other has."""

    fresh: Iterator[int]
    lanes: int

    def named(self, into: list[Stmt]) -> Callable[[Expr], Expr]:
        """What makes variables of expressions, declared in a list of statements."""

        def name(value: Expr) -> Expr:
            if isinstance(value, Local):
                return value
            local = Local(f"w{next(self.fresh)}", f32, self.lanes)
            into.append(Let(local, value))
            return local

        return name


def lanes_along(extent: int, machine: Machine) -> int:
    """Elements of a vector along an axis: the most that divide it; raises Unfit where these are too few."""
    lanes = math.gcd(machine.lanes(f32.itemsize), extent)
    if lanes < LEAST_LANES:
        raise Unfit(f"{extent} channels are no whole vectors of {LEAST_LANES} elements")
    return lanes


def column_loop(
    t: Transform, half: str, read: Callable[[Expr, Expr], Expr], vectors: Vectors, *, unroll: int = 0
) -> For:
    """half = rows·x, column by column."""
    column, lanes = Axis("wv", len(t.columns[0])), vectors.lanes
    body: list[Stmt] = []
    name = vectors.named(body)
    values = [name(read(Const(u), column)) for u in range(len(t.rows[0]))]
    for i, x in enumerate(coefficients.product(t.rows, values, name)):
        body.append(Store(half, simplify((column + i * column.extent) * lanes), x, lanes))
    return replace(loop(column, *body), unroll=unroll)


def row_loop(
    t: Transform,
    half: str,
    store: Callable[[Axis, int, Expr], tuple[Stmt, ...]],
    vectors: Vectors,
    *,
    unroll: int = 0,
) -> For:
    """half·columnsᵀ, row by row."""
    row, width, lanes = Axis("wi", len(t.rows)), len(t.columns[0]), vectors.lanes
    body: list[Stmt] = []
    name = vectors.named(body)
    values = [name(Lanes(Load(half, (simplify((row * width + v) * lanes),)), lanes)) for v in range(width)]
    for j, x in enumerate(coefficients.product(t.columns, values, name)):
        body += store(row, j, x)
    return replace(loop(row, *body), unroll=unroll)


@dataclass(frozen=True)
class Transforms(Choice):
    """Tiles transformed in both dimensions by straight-line sums of vectors."""

    name = "transforms"

    def apply(self, place: Place) -> Applied:
        t, kernel = place.transform, place.kernel
        if t is None:
            raise Unfit("it does not transform tiles")
        nest = t.nest
        a, b, *rest = nest.index
        axes = [x for x in rest if isinstance(x, Axis)]
        conditions = (
            (not place.machine.ordered, "sums keep the order of their axes"),
            (place.machine.vector_bytes >= 16, f"vectors have {place.machine.vector_bytes} bytes, tiles need 16"),
            (nest.where is None and nest.out not in place.written, "it is guarded, or has a value before"),
            (all(kernel.dtypes[n] is f32 for n in (nest.out, t.load.param)), "it is not in f32"),
            (bool(axes), "there is one tile only"),
        )
        require(conditions)
        *outer, column = axes
        lanes = lanes_along(column.extent, place.machine)
        lane, vectors = Axis("lane", lanes), Vectors(count(), lanes)
        load, spot = flat_expr(t.load, kernel.tensors), offset(nest.index, kernel.tensors[nest.out].shape)

        def element_at(u: Expr, v: Expr) -> Expr:
            value = vectorise(load, {t.inner[0]: u, t.inner[1]: v, column: column + lane}, lane, kernel.dtypes, f32)
            if not isinstance(value, Lanes):
                raise Unfit("what it reads is not contiguous")
            return value

        def store(i: Axis, j: int, value: Expr) -> tuple[Stmt, ...]:
            return (Store(nest.out, at(spot, {a: i, b: Const(j)}), value, lanes),)

        if (element := at(spot, {column: column + 1})) != simplify(spot + 1):
            raise Unfit(f"its results are not contiguous: {element}")
        half = buffer(f"half{place.number}", Type(f32, (len(t.rows) * len(t.columns[0]) * lanes,)))
        body = column_loop(t, half.name, element_at, vectors), row_loop(t, half.name, store, vectors)
        inner = For(column, Const(0), Const(column.extent), body, lanes)
        return Applied(self, wrap(tuple(outer), (inner,)), (half,))
