"""Sums of products, and other reductions along whole vectors: convolution, matrix product, their gradients, pooling.

    for batch: for row blocks: [copy of a] for column panels: [copy of b] for rows: register tile, then followers

By roles of axes: the column axis has unit stride in the output and becomes lanes. If one operand of a product has it
and the other has not, that other one is read as scalars for a tile of rows; if both have it (depthwise convolution) or
there is one operand (pooling), tiles have one row. Blocks keep what is read again within the second-level cache.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

from dlc.base.types import f32, f64, i8, u8
from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, apply
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.program import For, If, Stmt, axes_of, wrap
from dlc.kernel.loops.rename import rename
from dlc.kernel.nest import Nest, Param
from dlc.kernel.schedules.buffers import buffer
from dlc.kernel.schedules.choice import Applied, Choice, Place
from dlc.kernel.schedules.contraction_rows import block_start, panel_rows
from dlc.kernel.schedules.flat import coefficient, offset
from dlc.kernel.schedules.heights import row_limit, rows_per_block
from dlc.kernel.schedules.loop_plan import LoopPlan, plan_loops, widths
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.operands import prepare
from dlc.kernel.schedules.packed_rows import rows_packed
from dlc.kernel.schedules.reductions import check_reduction
from dlc.kernel.schedules.scope import open_scope
from dlc.kernel.schedules.tile import Tile
from dlc.kernel.schedules.unfit import Unfit, require
from dlc.kernel.schedules.window_rows import ROWS, overlap
from dlc.kernel.simplify import simplify
from dlc.spec import option

LEAST = 16
"""Bytes of a vector at least."""
PANEL_VECTORS = 2
"""Vectors of a row of a panel that is copied, where nothing else is said and there are as many columns."""


@dataclass(frozen=True)
class Tiles(Choice):
    """Register tiles of a sum of products, operands as they lie, or copied where guards or columns ask for it."""

    name = "tiles"
    columns: int = option(0, "output axis that becomes lanes, by its position", low=0)
    panels: bool = option(False, "copy the operand of the columns, one panel at a time")
    packed: bool = option(False, "copy the operand of the rows, a block at a time, so that they lie close together")
    vectors: int = option(0, "vectors of a tile's row", low=0)
    rows: int = option(0, "most rows of a tile", low=0)
    block: int = option(0, "rows that run through all columns before the next ones do", low=0)
    lanes: int = option(0, "columns of a vector that is shorter than those of the machine", low=0)
    whole: bool = option(False, "copy the rows once for all blocks, where they are copied")

    @classmethod
    def candidates(cls, place: Place) -> Iterator[Self]:
        check_contraction(place)
        axes = columns_of_group(place)
        if not axes:
            raise Unfit("no output axis has unit stride")
        for column in axes:
            number = place.group.shared.index(column)
            if lanes := _few_lanes(column, place):
                for panels in (False, True):
                    yield cls(number, panels, lanes=lanes)
            for panels, packed in ((False, False), (False, True), (True, False)):
                yield cls(number, panels, packed)

    def apply(self, place: Place) -> Applied:
        check_contraction(place)
        if self.lanes:
            place = _with_lanes(self.lanes, place)
        group, kernel, machine = place.group, place.kernel, place.machine
        if self.columns >= len(group.shared):
            raise Unfit(f"there is no output axis {self.columns}")
        column = group.shared[self.columns]
        if column not in columns_of_group(place):
            raise Unfit(f"output axis {self.columns} has no unit stride")
        most = -(-column.extent // machine.lanes(kernel.tensors[group.nests[0].out].dtype.itemsize))
        wide = self.vectors or min(PANEL_VECTORS, most)
        served = sys.maxsize if self.whole else self.block
        o = prepare(group, kernel, column, machine, wide * self.panels, served)
        whole = Kernel((*kernel.params, *o.buffers), kernel.results, kernel.locals, kernel.nests)
        # Copies are written in terms of these axes, so they must stay.
        named = axes_of((*o.copies, *(o.panel.fill if o.panel else ())))
        frozen = (o.column, *([o.block.axis] if o.block else ()), *(a for a in group.shared if a in named))
        plan = plan_loops(o, open_scope(o.group, whole, frozen), whole, machine, named, self.block)
        if self.packed:
            plan = rows_packed(plan, machine, self.block)
        problem = Unfit("no vector fits a row")
        for vectors in [self.vectors] if self.vectors else widths(plan, machine):
            try:
                return self._tiled(place, plan, vectors)
            except Unfit as found:
                problem = found
        raise problem

    def _tiled(self, place: Place, plan: LoopPlan, vectors: int) -> Applied:
        machine = place.machine
        tallest = row_limit(vectors, machine.registers)
        rows = self.rows or (min(ROWS, tallest) if overlap(plan.tile) else tallest)
        if rows * vectors > machine.registers:
            raise Unfit(f"{rows} rows of {vectors} vectors are more than {machine.registers} registers hold")
        plan = replace(plan, vectors=vectors, tall=rows)
        if not self.block:
            plan = replace(plan, size=_block_size(plan))
        body = panels_of(plan, machine)
        waiting = plan.height * vectors * plan.tile.lanes if plan.outside else 0
        block = plan.size if plan.blocked else _all_rows(plan)
        # One copy may serve all blocks that threads share, and those of another axis.
        o = plan.operands
        divisible = o.divisible if o.copies and o.block is None and not self.packed else None
        whole = divisible is not None and block < divisible.extent
        choice = replace(self, vectors=vectors, rows=rows, block=block, whole=whole)
        return applied(choice, place, plan, wrap(plan.outer, body), plan.operands.buffers, waiting)


def applied(
    choice: Choice, place: Place, plan: LoopPlan, body: tuple[Stmt, ...], copies: Sequence[Param], waiting: int = 0
) -> Applied:
    """Loops of tiles, with names of buffers that no other group of the kernel has."""
    return applied_tiles(choice, place, plan.tile, body, copies, waiting)


def applied_tiles(
    choice: Choice, place: Place, t: Tile, body: tuple[Stmt, ...], copies: Sequence[Param] = (), waiting: int = 0
) -> Applied:
    """The same for tiles without a plan."""
    type = place.kernel.tensors[t.product.out].type
    # All accumulators of a tile are in registers, whatever its shape.
    held = place.machine.registers * t.lanes
    own = (Param("tile", type.with_shape((held,))), *([Param("part", type.with_shape((waiting,)))] if waiting else ()))
    names = {p.name: f"{p.name}{place.number}" for p in (*copies, *own)}
    return Applied(choice, rename(body, names), tuple(buffer(names[p.name], p.type) for p in (*copies, *own)))


def check_contraction(place: Place) -> None:
    """Raises Unfit for a group whose first nest is no reduction into elements of its own, or that may not use tiles."""
    group, kernel, machine = place.group, place.kernel, place.machine
    nest = group.nests[0]
    dtype = kernel.tensors[nest.out].dtype
    conditions = (
        (not machine.ordered, "sums keep the order of their axes"),
        (machine.vector_bytes >= LEAST, f"vectors have {machine.vector_bytes} bytes, tiles need {LEAST}"),
        (dtype in (f32, f64) or _of_bytes(nest, kernel), f"there are no vectors of {dtype}"),
        # Tiles may run past the end of a size.
        (not any(kernel.tensors[n.out].type.dense for n in group.nests), "no element lies behind the last of a call"),
    )
    require(conditions)
    check_reduction(place)


def _of_bytes(nest: Nest, kernel: Kernel) -> bool:
    """Whether a sum adds products of bytes in 32 bits."""
    match nest.reduce, nest.body:
        case "add", Apply("mul", (Apply("i32", (Load() as a,)), Apply("i32", (Load() as b,)))):
            return all(kernel.tensors[x.param].dtype in (i8, u8) for x in (a, b))
        case _:
            return False


def _few_lanes(column: Axis, place: Place) -> int:
    """As many lanes as there are columns, where that is a vector, but not a whole one of the machine; else 0."""
    itemsize = place.kernel.tensors[place.group.nests[0].out].dtype.itemsize
    most = place.machine.lanes(itemsize)
    sizes = [n for n in (most // 2, most // 4, most // 8) if n * itemsize >= LEAST and column.extent % n == 0]
    return sizes[0] if sizes and column.extent < most and column.limit is None else 0


def _with_lanes(lanes: int, place: Place) -> Place:
    """The place on a machine of so short vectors."""
    itemsize = place.kernel.tensors[place.group.nests[0].out].dtype.itemsize
    size = lanes * itemsize
    if not LEAST <= size <= place.machine.vector_bytes or size & (size - 1):
        raise Unfit(f"there are no vectors of {lanes} elements")
    return replace(place, machine=replace(place.machine, vector_bytes=size))


def columns_of_group(place: Place) -> list[Axis]:
    """Output axes along which the last result is contiguous."""
    last = place.group.nests[-1]
    at = offset(last.index, place.kernel.tensors[last.out].shape)
    return [a for a in place.group.shared if coefficient(at, a) == 1]


def panels_of(plan: LoopPlan, machine: Machine) -> tuple[Stmt, ...]:
    """All columns: full panels in a loop, then what is left."""
    vectors = plan.vectors
    width = vectors * plan.tile.lanes
    extent = plan.tile.column.extent
    if plan.tile.column.limit is not None:
        return _blocks(plan, wrap(plan.around, _some_columns(plan, machine)))
    full, rest = divmod(extent, width)
    panel = plan.operands.panel
    before = () if panel is None else panel.fill
    cb = Axis("cb", -(-extent // width)) if panel is None else plan.operands.panel_axis
    body: list[Stmt] = []
    if full:
        rows = panel_rows(plan, cb * width, vectors, width, machine)
        body.append(For(cb, Const(0), Const(full), (*before, *rows)))
    if rest and panel is not None:
        rows = panel_rows(plan, cb * width, vectors, rest, machine)
        body.append(For(cb, Const(full), Const(full + 1), (*before, *rows)))
    elif rest:
        body += _last_columns(plan, rest, machine)
    return _blocks(plan, wrap(plan.around, tuple(body)))


def _some_columns(plan: LoopPlan, machine: Machine) -> tuple[Stmt, ...]:
    """The columns up to a limit: panels, then single vectors. The last may run past the limit, where there is room."""
    lanes, extent, limit = plan.tile.lanes, plan.tile.column.extent, plan.tile.column.stop
    panel, body = plan.operands.panel, list[Stmt]()
    width = plan.vectors * lanes
    if panel is not None:
        cb, full = plan.operands.panel_axis, extent // width
        panels = simplify((limit + (width - 1)) // width)
        for first, stop, columns in ((0, apply("min", panels, full), width), (full, panels, extent % width)):
            if columns:
                rows = panel_rows(plan, cb * width, plan.vectors, columns, machine)
                body.append(For(cb, Const(first), stop, (*panel.fill, *rows)))
        return tuple(body)
    start: Expr = Const(0)
    for count in dict.fromkeys((plan.vectors, 1)):
        step = count * lanes
        last = simplify(limit // step * step if count > 1 else apply("min", limit, extent - extent % lanes))
        at = Axis("cv", extent)
        if extent >= step:
            body.append(For(at, start, last, panel_rows(plan, at, count, step, machine), step))
            start = last if count > 1 else start
    if extent % lanes:
        rows = _last_columns(plan, extent % lanes, machine)
        body.append(If(apply("gt", limit, extent - extent % lanes), rows))
    return tuple(body)


def _last_columns(plan: LoopPlan, rest: int, machine: Machine) -> tuple[Stmt, ...]:
    """Columns behind the full panels: exactly, by computing some again, or by reading padding that exists."""
    lanes, extent = plan.tile.lanes, plan.tile.column.extent
    vectors = -(-rest // lanes)
    width = vectors * lanes
    if width != rest and extent >= width and not plan.once:
        try:
            return panel_rows(plan, Const(extent - width), vectors, width, machine)
        except Unfit:
            pass  # there may be padding to read
    if width != rest and not _padding_exists(plan, extent - rest, width):
        raise Unfit(f"the last {rest} of {extent} columns are no whole vectors of {lanes}")
    return panel_rows(plan, Const(extent - rest), vectors, rest, machine)


def _padding_exists(plan: LoopPlan, first: int, width: int) -> bool:
    """Whether every load of the product stays inside its tensor although the columns run past their end."""
    from dlc.kernel.schedules.flat import at
    from dlc.kernel.simplify import bounds

    stack: list[Expr] = [at(plan.tile.product.body, {plan.tile.column: Const(first) + Axis("lane", width)})]
    while stack:
        e = stack.pop()
        if isinstance(e, Load):
            span = bounds(e.index[0])
            if span is None or span[0] < 0 or span[1] >= plan.operands.sizes[e.param]:
                return False
        elif isinstance(e, Apply):
            stack.extend(e.args)
    return True


def _blocks(plan: LoopPlan, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The loop over row blocks around the panels, with the copy of the rows' operand."""
    copies = plan.operands.copies
    if plan.block is None or not plan.blocked:
        return (*copies, *body)
    start, stop = block_start(plan), plan.block.stop
    if plan.operands.block is None:  # a copy of all rows serves all blocks
        return (*copies, For(start, Const(0), stop, body, plan.size))
    return (For(start, Const(0), stop, (*copies, *body), plan.size),)


def _block_size(plan: LoopPlan) -> int:
    """Blocks of the tile's own axis are whole tiles; those of a copy are as large as the copy."""
    if plan.operands.block is not None or plan.block is None or plan.block != plan.tile.row or not plan.blocked:
        return plan.size
    return rows_per_block(plan.block.extent, plan.size, plan.tall, plan.vectors)


def _all_rows(plan: LoopPlan) -> int:
    """All rows in one block."""
    return plan.block.extent if plan.block else 0
