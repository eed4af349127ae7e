"""The rows of a contraction inside one panel of columns: blocks of them, tiles of different heights, what is left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from dlc.kernel.expr import Axis, Const, Expr, apply
from dlc.kernel.loops.program import Block, For, If, Stmt, loop
from dlc.kernel.schedules.ahead import panels_ahead
from dlc.kernel.schedules.heights import alike_rows, last_block, row_limit, split_rows
from dlc.kernel.schedules.loop_plan import LoopPlan
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.open_rows import OpenRows, heights
from dlc.kernel.schedules.scalar_loops import fill
from dlc.kernel.schedules.tile import Parts, Spot
from dlc.kernel.schedules.tiles import tile
from dlc.kernel.simplify import bounds, linear, simplify


def block_start(plan: LoopPlan) -> Axis:
    """The first row of a block."""
    assert plan.block is not None
    return plan.operands.block.start if plan.operands.block else Axis("y0", plan.block.extent)


def panel_rows(plan: LoopPlan, column: Expr, vectors: int, columns: int, machine: Machine) -> tuple[Stmt, ...]:
    """All rows of a block for one panel; where the reduction is cut, part by part and then the followers.

    Raises:
        Unfit: tiles cannot be written there.
    """
    limit = plan.tall if vectors == plan.vectors else row_limit(vectors, machine.registers)
    spot = Spot(Const(0), column, limit, vectors, columns)
    start = block_start(plan) if plan.blocked else Const(0)
    plan = replace(plan, tile=replace(plan.tile, ahead=panels_ahead(plan, spot, start, machine)))
    if plan.outside is None:
        return _row_loops(plan, spot)
    width = vectors * plan.tile.lanes
    place: Expr = Const(0)
    for axis in plan.rows:
        place = place * axis.extent + axis
    parts = Parts("part", place * width, False)
    adding, ending = (replace(plan, tile=replace(plan.tile, parts=replace(parts, finish=f))) for f in (False, True))
    add = _row_loops(adding, spot)
    end = _row_loops(ending, replace(spot, rows=1))
    return (*fill("part", plan.height * width, plan.tile.start), loop(plan.outside, *add), *end)


def _row_loops(plan: LoopPlan, s: Spot) -> tuple[Stmt, ...]:
    """Tiles of at most as many rows as `s` has over all rows of a block."""
    row = plan.tile.row
    extent = row.extent if row else 1
    own = plan.blocked and plan.block == row
    if row is not None and row.limit is not None:
        start = block_start(plan) if own else Const(0)
        result = _some_rows(plan, s, start, apply("min", start + plan.size, row.limit) if own else row.limit)
    else:
        result = _own_blocks(plan, s, extent) if own else _tiles(plan, s, Const(0), extent)
    for axis in reversed(plan.between):
        if plan.blocked and axis == plan.block:
            start = block_start(plan)
            result = (For(axis, start, apply("min", start + plan.size, axis.stop), result),)
        else:
            result = (loop(axis, *result),)
    return result


def _some_rows(plan: LoopPlan, s: Spot, start: Expr, stop: Expr) -> tuple[Stmt, ...]:
    """The rows from `start` to `stop`, a size: tall tiles, then those that cover what is left.

    Where heights do not divide every size, the last tile runs past the last row, if there is always room; what is there
    has no meaning. Else it begins above the first row that is missing, if rows may be computed again. Else half as tall
    tiles follow the tall ones, then single rows.
    """
    row = plan.tile.row
    assert row is not None
    s = replace(s, rows=min(s.rows, row.extent))
    blocks = start != Const(0)
    again = not (blocks or plan.once or plan.tile.parts is not None)
    span, unit = bounds(row.stop), _unit(row)
    low = max(0, span[0]) if span else 0
    sizes = OpenRows(low, row.extent, unit, plan.size if blocks else row.extent)
    found = heights(sizes, s.rows, s.vectors, again)
    if found is None:
        return _fewer_rows(plan, s, start, stop)
    count = simplify(stop - start)
    most = (count - (found.shared + 1)) // found.tall if found.shared else count // found.tall
    end = simplify(start + (apply("max", most, 0) if found.shared else most) * found.tall)
    body = _tall(plan, replace(s, rows=found.tall), start, end)
    cases: list[tuple[int, tuple[Stmt, ...]]] = []
    for parts in found.rests:
        first = simplify(stop - sum(parts)) if found.exact else end
        if not found.exact and row.extent % found.step:
            first = apply("max", simplify(stop - sum(parts)), 0)
        rows = _below_one_another(plan, s, first, parts)
        cases.append((sum(parts), rows))
    left = simplify(stop - end)
    rest = _choice(left, cases)
    always = found.shared > 0 and low > 0
    return (*body, *(rest if always or not rest else (If(apply("gt", left, 0), rest),)))


def _unit(row: Axis) -> int:
    """A number that the end of an axis is a multiple of, whatever the sizes are."""
    form = linear(row.stop)
    return 1 if form is None else max(1, math.gcd(form.constant, *(c for _, c in form.terms)))


def _below_one_another(plan: LoopPlan, s: Spot, first: Expr, rows: Sequence[int]) -> tuple[Stmt, ...]:
    """Tiles of these heights from a row on."""
    out: list[Stmt] = []
    for height in rows:
        out.append(Block(tile(plan.tile, replace(s, row=first, rows=height))))
        first = simplify(first + height)
    return tuple(out)


def _choice(left: Expr, cases: Sequence[tuple[int, tuple[Stmt, ...]]]) -> tuple[Stmt, ...]:
    """The first of the cases, which ascend, that is at least what is left."""
    if len(cases) < 2:
        return tuple(s for _, body in cases for s in body)
    half = len(cases) // 2
    return (If(apply("le", left, cases[half - 1][0]), _choice(left, cases[:half]), _choice(left, cases[half:])),)


def _fewer_rows(plan: LoopPlan, s: Spot, start: Expr, stop: Expr) -> tuple[Stmt, ...]:
    """Tall tiles, half as tall ones, single rows."""
    out: list[Stmt] = []
    for height in dict.fromkeys((s.rows, max(1, s.rows // 2), 1)):
        end = stop if height == 1 else simplify(start + (stop - start) // height * height)
        out += _tall(plan, replace(s, rows=height), start, end)
        start = end
    return tuple(out)


def _own_blocks(plan: LoopPlan, s: Spot, extent: int) -> tuple[Stmt, ...]:
    """The tiles of one block of the tile's own axis: exactly its rows, whatever the heights.

    Where blocks are whole tiles and only the last holds others, one loop serves all. Else the last, which is shorter,
    has tiles of its own.
    """
    start, size = block_start(plan), plan.size
    heights = split_rows(extent, s.rows, s.vectors)
    whole = heights.count(heights[0]) * heights[0]
    if size % heights[0] == 0 and last_block(extent, size) <= whole:
        tall = _tall(plan, replace(s, rows=heights[0]), start, apply("min", start + size, whole))
        if whole == extent:
            return tall
        return (*tall, If(apply("ge", start + size, extent), _tiles(plan, s, Const(whole), extent - whole)))
    full = _tiles(plan, s, start, size)
    if extent % size == 0:
        return full
    return (If(apply("le", start + size, extent), full, _tiles(plan, s, start, extent % size)),)


def _tiles(plan: LoopPlan, s: Spot, first: Expr, count: int) -> tuple[Stmt, ...]:
    """Tiles over `count` rows from `first` on."""
    out: list[Stmt] = []
    for height, run in groupby(alike_rows(count, s.rows, s.vectors)):
        rows = height * len(list(run))
        out += _equal(plan, replace(s, rows=height), first, rows)
        first = first + rows
    return tuple(out)


def _equal(plan: LoopPlan, s: Spot, first: Expr, rows: int) -> tuple[Stmt, ...]:
    """Equal tiles below one another over so many rows."""
    if s.rows < rows:
        return _tall(plan, s, first, first + rows)
    return (Block(tile(plan.tile, replace(s, row=first))),)


def _tall(plan: LoopPlan, s: Spot, first: Expr, stop: Expr) -> tuple[Stmt, ...]:
    """A loop of equal tiles from row to row."""
    assert plan.tile.row is not None
    at = Axis("rt", plan.tile.row.extent)
    return (For(at, first, stop, tile(plan.tile, replace(s, row=at)), s.rows),)
