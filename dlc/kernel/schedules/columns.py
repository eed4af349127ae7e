"""Sums down the columns of operands that no cache holds, row by row, as they lie in memory.

    for j: r[j] = Σₖ f(x[k,j])
    →
    for j: r[j] = 0
    for parts of k: for j: t[j] = 0;  for k += 8: for j: t[j] += f(x[k,j]) + … + f(x[k+7,j]);   for j: r[j] += t[j]

Tiles take some columns of every row before the next ones. Processors foresee few such reads, because the next one is a
row further on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dlc.base.types import Type, f32, f64
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, loads
from dlc.kernel.loops.program import For, Lanes, Let, Local, Stmt, Store
from dlc.kernel.nest import Nest, zero
from dlc.kernel.schedules.buffers import buffer
from dlc.kernel.schedules.choice import Applied, Choice, Place
from dlc.kernel.schedules.flat import coefficient
from dlc.kernel.schedules.lanes import has_lanes, vectorise
from dlc.kernel.schedules.levels import LONG
from dlc.kernel.schedules.rows import FAR
from dlc.kernel.schedules.scope import merge_run
from dlc.kernel.schedules.unfit import Unfit, require
from dlc.spec import option

TOGETHER = 8
"""Rows at the same time: sums are read and written once for all of them, and each is a stream from memory."""
NARROW = 8
"""Vectors of a row up to which tiles read whole rows as well."""
PART = 4
"""What part of the first-level cache sums may take."""


@dataclass(frozen=True)
class Columns(Choice):
    """Sums down the columns of large operands, row by row."""

    name = "columns"
    rows: int = option(0, "rows that are added to the sums at a time", low=0)

    def apply(self, place: Place) -> Applied:
        scope, machine = place.scope, place.machine
        if scope is None or len(scope.nests) != 1 or scope.scalars or len(scope.shared) != 1:
            raise Unfit("it is no sum by itself into neighbouring elements")
        (nest,), (column,) = scope.nests, scope.shared
        (nest,), reduced = merge_run((nest,), tuple(a for a in nest.axes if a != column))
        dtype = place.kernel.dtypes[nest.out]
        lanes, count = machine.lanes(dtype.itemsize), self.rows or TOGETHER
        conditions = (
            (machine.vector_bytes >= 16 and not machine.ordered, "there are no vectors, or sums keep their order"),
            (nest.reduce == "add" and dtype in (f32, f64), "it adds up no floats"),
            (nest.where is None and all(a.limit is None for a in (column, *reduced)), "it has a guard or open sizes"),
            (scope.plain[0] and nest.out not in place.written and nest.index[0] == column, "its result has a start"),
            (place.kernel.tensors[nest.out].stored is None, "its result is stored in a narrow type"),
            (len(reduced) == 1 and reduced[0].extent >= 2 * LONG, "it adds up along several axes, or little"),
            (column.extent % lanes == 0, f"{column.extent} columns are no whole vectors"),
            (column.extent > NARROW * lanes, f"tiles read its {column.extent} columns as well"),
            (PART * column.extent * dtype.itemsize <= machine.l1, "its sums take too much of the nearest cache"),
            (count <= LONG, f"{count} rows are more than are added to a sum"),
        )
        require(conditions)
        (row,) = reduced
        read = sum(place.kernel.tensors[n].type.nbytes for n in _far(nest, row, column))
        if not self.rows and read < FAR * machine.l2:
            raise Unfit(f"it reads {read} bytes, which a cache may hold")
        part = f"part{place.number}"
        body = _loops(nest, row, column, lanes, count, part, place)
        return Applied(replace(self, rows=count), body, (buffer(part, Type(dtype, (column.extent,))),))


def _far(nest: Nest, row: Axis, column: Axis) -> frozenset[str]:
    """The tensors that are read row by row, each element once."""
    return frozenset(x.param for x in loads(nest.body) if all(coefficient(x.index[0], a) for a in (row, column)))


def _loops(nest: Nest, row: Axis, column: Axis, lanes: int, count: int, part: str, place: Place) -> tuple[Stmt, ...]:
    dtype = place.kernel.dtypes[nest.out]
    lane, sum = Axis("lane", lanes), Local("sum", dtype, lanes)

    def terms(first: Expr, rows: int) -> For:
        """So many rows added to the sums of their part."""
        at = Load(part, (column,))
        steps: list[Stmt] = [Let(sum, Lanes(at, lanes))]
        for k in range(rows):
            mapping: dict[Expr, Expr] = {row: first + k, column: column + lane}
            value = vectorise(nest.body, mapping, lane, place.kernel.dtypes, dtype)
            if value is None or not has_lanes(value):
                raise Unfit(f"its terms have no form for {lanes} columns at once")
            steps.append(_plus(sum, value, k))
        last = replace(sum, name=f"sum{rows - 1}")
        return _along(column, lanes, (*steps, Store(part, column, last, lanes)))

    blocks, start = Axis(f"{row.name}b", row.extent), Const(place.kernel.start_of(nest.out))
    size = LONG // count * count
    whole = row.extent // size * size
    add = Lanes(Load(nest.out, (column,)), lanes) + Lanes(Load(part, (column,)), lanes)
    cleared = _along(column, lanes, (Store(part, column, zero(dtype), lanes),))
    end = _along(column, lanes, (Store(nest.out, column, add, lanes),))
    body: list[Stmt] = [_along(column, lanes, (Store(nest.out, column, start, lanes),))]
    inner = For(row, blocks, blocks + size, (terms(row, count),), count)
    body.append(For(blocks, Const(0), Const(whole), (cleared, inner, end), size))
    if whole < row.extent:
        rest = For(row, Const(whole), Const(row.extent), (terms(row, 1),))
        body += (cleared, rest, end)
    return tuple(body)


def _plus(sum: Local, value: Expr, k: int) -> Let:
    """The sum with one more term: a variable of its own."""
    before = sum if k == 0 else replace(sum, name=f"sum{k - 1}")
    return Let(replace(sum, name=f"sum{k}"), Apply("add", (before, value)))


def _along(column: Axis, lanes: int, body: tuple[Stmt, ...]) -> For:
    return For(column, Const(0), Const(column.extent), body, lanes)
