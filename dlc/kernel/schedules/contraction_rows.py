"""The rows of a contraction inside one panel of columns: blocks of them, tiles of different heights, what is left."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from dlc.kernel.expr import Axis, Const, Expr, apply
from dlc.kernel.loops.program import Block, For, If, Stmt, loop
from dlc.kernel.schedules.heights import last_block, row_limit, split_rows
from dlc.kernel.schedules.loop_plan import LoopPlan
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.scalar_loops import fill
from dlc.kernel.schedules.tile import Parts, Spot
from dlc.kernel.schedules.tiles import tile
from dlc.kernel.simplify import simplify


def block_start(plan: LoopPlan) -> Axis:
    """The first row of a block."""
    assert plan.block is not None
    return plan.operands.block.start if plan.operands.block else Axis("y0", plan.block.extent)


def panel_rows(plan: LoopPlan, column: Expr, vectors: int, columns: int, machine: Machine) -> tuple[Stmt, ...] | None:
    """All rows of a block for one panel; where the reduction is cut, part by part and then the followers."""
    limit = row_limit(vectors, machine.registers)
    spot = Spot(Const(0), column, limit, vectors, columns)
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
    if add is None or end is None:
        return None
    return (*fill("part", plan.height * width, plan.tile.start), loop(plan.outside, *add), *end)


def _row_loops(plan: LoopPlan, s: Spot) -> tuple[Stmt, ...] | None:
    """Tiles of at most as many rows as `s` has over all rows of a block."""
    row = plan.tile.row
    extent = row.extent if row else 1
    own = plan.blocked and plan.block == row
    if row is not None and row.limit is not None:
        start = block_start(plan) if own else Const(0)
        result = _some_rows(plan, s, start, apply("min", start + plan.size, row.limit) if own else row.limit)
    else:
        result = _own_blocks(plan, s, extent) if own else _tiles(plan, s, Const(0), extent)
    if result is None:
        return None
    for axis in reversed(plan.between):
        if plan.blocked and axis == plan.block:
            start = block_start(plan)
            result = (For(axis, start, apply("min", start + plan.size, axis.stop), result),)
        else:
            result = (loop(axis, *result),)
    return result


def _some_rows(plan: LoopPlan, s: Spot, start: Expr, stop: Expr) -> tuple[Stmt, ...] | None:
    """The rows from `start` to `stop`, a size: tall tiles, the last of which computes some rows again.

    Where there are fewer rows than a tile has, it runs past the last, where there is room; what is there has no
    meaning. Blocks, and tiles that may compute no row again: half as tall ones behind the tall ones, then single rows.
    """
    assert plan.tile.row is not None
    s = replace(s, rows=min(s.rows, plan.tile.row.extent))
    half = s.rows // 2
    fewer = _fewer_rows(plan, s, start, stop)
    if start != Const(0) or s.rows == 1 or plan.tile.parts is not None:
        return fewer
    tall = _tall(plan, s, start, simplify(stop - s.rows + 1))
    last = tile(plan.tile, replace(s, row=apply("max", simplify(stop - s.rows), 0)))
    short = tile(plan.tile, replace(s, row=Const(0), rows=half))
    single = tile(plan.tile, replace(s, row=Const(0), rows=1))
    if fewer is None or tall is None or last is None or short is None or single is None:
        return None
    if plan.once:
        many: tuple[Stmt, ...] = (If(apply("ge", stop, s.rows), fewer, last),)
    else:
        many = (*tall, If(apply("ne", stop % s.rows, 0), last))
    few: tuple[Stmt, ...] = (Block(single),) if half == 1 else (If(apply("gt", stop, 1), short, single),)
    return (If(apply("gt", stop, half), many, few),)


def _fewer_rows(plan: LoopPlan, s: Spot, start: Expr, stop: Expr) -> tuple[Stmt, ...] | None:
    out: list[Stmt] = []
    for height in dict.fromkeys((s.rows, max(1, s.rows // 2), 1)):
        end = stop if height == 1 else simplify(start + (stop - start) // height * height)
        tall = _tall(plan, replace(s, rows=height), start, end)
        if tall is None:
            return None
        out += tall
        start = end
    return tuple(out)


def _own_blocks(plan: LoopPlan, s: Spot, extent: int) -> tuple[Stmt, ...] | None:
    """The tiles of one block of the tile's own axis: exactly its rows, whatever the heights.

    Where blocks are whole tiles and only the last holds others, one loop serves all. Else the last, which is shorter,
    has tiles of its own.
    """
    start, size = block_start(plan), plan.size
    heights = split_rows(extent, s.rows, s.vectors)
    whole = heights.count(heights[0]) * heights[0]
    if size % heights[0] == 0 and last_block(extent, size) <= whole:
        tall = _tall(plan, replace(s, rows=heights[0]), start, apply("min", start + size, whole))
        if tall is None or whole == extent:
            return tall
        rest = _tiles(plan, s, Const(whole), extent - whole)
        return None if rest is None else (*tall, If(apply("ge", start + size, extent), rest))
    full = _tiles(plan, s, start, size)
    if extent % size == 0 or full is None:
        return full
    rest = _tiles(plan, s, start, extent % size)
    return None if rest is None else (If(apply("le", start + size, extent), full, rest),)


def _tiles(plan: LoopPlan, s: Spot, first: Expr, count: int) -> tuple[Stmt, ...] | None:
    """Tiles over `count` rows from `first` on."""
    out: list[Stmt] = []
    for height, run in groupby(split_rows(count, s.rows, s.vectors)):
        rows = height * len(list(run))
        body = _equal(plan, replace(s, rows=height), first, rows)
        if body is None:
            return None
        out += body
        first = first + rows
    return tuple(out)


def _equal(plan: LoopPlan, s: Spot, first: Expr, rows: int) -> tuple[Stmt, ...] | None:
    """Equal tiles below one another over so many rows."""
    if s.rows < rows:
        return _tall(plan, s, first, first + rows)
    single = tile(plan.tile, replace(s, row=first))
    return None if single is None else (Block(single),)


def _tall(plan: LoopPlan, s: Spot, first: Expr, stop: Expr) -> tuple[Stmt, ...] | None:
    """A loop of equal tiles from row to row."""
    assert plan.tile.row is not None
    at = Axis("rt", plan.tile.row.extent)
    body = tile(plan.tile, replace(s, row=at))
    return None if body is None else (For(at, first, stop, body, s.rows),)
