"""Operands that lie across the result are turned in a short buffer, block by block.

    for i: for j: r[i, j] = p[j, i]
    →
    for blocks of i, j: for j: for i: t[i, j] = p[j, i]
                        for i: for j: r[i, j] = t[i, j]

Whole lines of both are read and written, where the loops on the left read an element of a line at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlc.base.types import Type
from dlc.kernel.expr import Axis, Const, Load, apply, loads, map_loads
from dlc.kernel.loops.program import For, Stmt, Store, wrap
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.buffers import buffer
from dlc.kernel.schedules.choice import Applied, Choice, Place
from dlc.kernel.schedules.flat import coefficient
from dlc.kernel.schedules.scope import order
from dlc.kernel.schedules.unfit import Unfit, require
from dlc.kernel.simplify import bounds
from dlc.spec import option

LINE = 64
"""Bytes of a line: what a block has of a row of the result."""
ROWS = 64
"""Rows of the result in a block: elements of some neighbouring lines of the operand."""


@dataclass(frozen=True)
class Turned(Choice):
    """Operands that lie across the result, turned by blocks in a short buffer."""

    name = "turned"
    rows: int = option(0, "rows of the result in a block", low=0)

    def apply(self, place: Place) -> Applied:
        scope = place.scope
        if scope is None or len(scope.nests) != 1 or scope.scalars:
            raise Unfit("it is no assignment by itself")
        (nest,) = scope.nests
        machine, tensors = place.machine, place.kernel.tensors
        conditions = (
            (machine.vector_bytes >= 16, "there are no vectors"),
            (nest.reduce is None and bool(nest.axes), "it adds up, or is one element"),
            (nest.where is None and set(scope.shared) == set(nest.axes), "it has a guard"),
            (all(a.limit is None for a in nest.axes), "its sizes are open"),
        )
        require(conditions)
        axes = order(nest.axes, nest)
        column = axes[-1]
        row, across = _across(nest, column)
        width = LINE // max(tensors[x.param].dtype.itemsize for x in across)
        rows = self.rows or ROWS
        conditions = (
            (coefficient(nest.index[0], column) == 1, "its stores are apart"),
            (column.extent >= width and row.extent >= width, f"it has {row.extent} rows of {column.extent} elements"),
            (all(tensors[x.param].stored is None and not tensors[x.param].packed for x in across), "it converts"),
            # A copy reads every element, also those that a condition keeps the value from reading.
            (all(_exists(x, tensors[x.param].type.capacity) for x in across), "what it reads may not exist"),
        )
        require(conditions)
        names = {x: f"turn{place.number}_{k}" for k, x in enumerate(across)}
        full = column.extent // width * width
        block, first = Axis(f"{row.name}b", row.extent), Axis(f"{column.name}b", column.extent)
        at = (row - block) * width + (column - first)
        last = apply("min", block + rows, row.extent)
        inside: list[Stmt] = [
            For(column, first, first + width, (For(row, block, last, (Store(names[x], at, x),)),)) for x in across
        ]
        value = map_loads(nest.body, lambda x: Load(names[x], (at,)) if x in names else x)
        inside.append(
            For(row, block, last, (For(column, first, first + width, (Store(nest.out, nest.index[0], value),)),))
        )
        loops: tuple[Stmt, ...] = (
            For(block, Const(0), Const(row.extent), (For(first, Const(0), Const(full), tuple(inside), width),), rows),
        )
        if full < column.extent:
            rest = For(column, Const(full), Const(column.extent), (Store(nest.out, nest.index[0], nest.body),))
            loops = (*loops, For(row, Const(0), Const(row.extent), (rest,)))
        outer = tuple(a for a in axes if a not in (row, column))
        of = {names[x]: Type(tensors[x.param].dtype, (rows * width,)) for x in across}
        return Applied(
            type(self)(rows=rows), wrap(outer, loops), tuple(buffer(name, type) for name, type in of.items())
        )


def _exists(x: Load, elements: int) -> bool:
    """Whether a flat load lies inside of its tensor for all values of the axes."""
    span = bounds(x.index[0])
    return span is not None and span[0] >= 0 and span[1] < elements


def _across(nest: Nest, column: Axis) -> tuple[Axis, tuple[Load, ...]]:
    """The axis along which operands are contiguous that the columns do not walk along, and these operands.

    Raises:
        Unfit: there is none, or there are several such axes.
    """
    found: dict[Load, Axis] = {}
    for x in loads(nest.body):
        steps = {a: coefficient(x.index[0], a) for a in nest.axes}
        if steps[column] is None:
            raise Unfit("data decide what it reads")
        if abs(steps[column] or 0) > 1:
            along = [a for a, step in steps.items() if step == 1]
            if len(along) != 1:
                raise Unfit("an operand lies along no other axis")
            found[x] = along[0]
    rows = set(found.values())
    if len(rows) != 1:
        raise Unfit("no operand lies across the result" if not rows else "operands lie across it along several axes")
    return rows.pop(), tuple(found)
