"""Hints for the panel that comes next: it travels from memory while the tiles of this one compute.

    for panels p: for rows i<n: for k<K: c_i += a[i, k]·b[p, k]
    →
    for panels p: for rows i<n: for k<K: fetch b[p + 1, (i·K + k)/n];  c_i += a[i, k]·b[p, k]

Without them the first tile of a panel waits for memory, and memory for all other tiles. Each of the first tiles fetches
its share, so that neither waits. Past the last panel, elements at the end of the operand are fetched again.
"""

from __future__ import annotations

import math

from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, apply
from dlc.kernel.loops.program import Prefetch
from dlc.kernel.schedules.flat import at, axis_inside, coefficient
from dlc.kernel.schedules.loop_plan import LoopPlan
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.prefetch import LINE
from dlc.kernel.schedules.tile import Ahead, Spot, Tile, mapping_of
from dlc.kernel.simplify import linear, simplify

SHARES = (4, 2)
"""In how many parts a panel may be fetched."""
MOST_TILES = 8
"""Where more tiles read a panel, what the first of them waits is little beside what all compute."""


def panels_ahead(plan: LoopPlan, s: Spot, start: Expr, machine: Machine) -> Ahead | None:
    """What tiles of the panel at a spot fetch; None where there is no next panel, or it is in a cache already.

    Args:
        plan: The loops around the tiles.
        s: Where the first tile of a panel lies.
        start: The first row of a block.
        machine: What it runs on.
    """
    t = plan.tile
    load = _columns_operand(t)
    axes = (*plan.rows, *t.reduced, *([plan.outside] if plan.outside else ()))
    if load is None or t.row is None or t.words or t.packed or plan.operands.panel is not None:
        return None
    if any(a.limit is not None for a in axes) or t.product.where is not None or isinstance(s.column, Const):
        return None
    size, item = plan.operands.sizes[load.param], t.dtype.itemsize
    rows = [plan.size if plan.blocked and a == plan.block else a.extent for a in plan.rows]
    tiles = math.prod(rows[:-1]) * -(-rows[-1] // s.rows)
    k = t.reduced[-1]
    shares = next((n for n in SHARES if n <= tiles and k.extent % n == 0), 0)
    if size * item <= machine.l2 or not shares or tiles > MOST_TILES:
        return None
    here, width = load.index[0], s.vectors * t.lanes
    first, second = (at(here, {t.column: s.column + n}) for n in (0, width))
    panel, far = linear(simplify(second - first)), coefficient(here, k)
    if panel is None or panel.terms or panel.constant <= 0 or far is None or far * item < LINE or far % shares:
        return None
    step: Expr = Const(panel.constant)
    if plan.outside is not None:
        part, count = coefficient(here, plan.outside), plan.outside.extent
        if not part or part < 0:
            return None
        step = (plan.outside + 1) // count * (panel.constant - count * part) + part
    position: Expr = Const(0)
    for axis, extent in zip(plan.rows, rows, strict=True):
        position = position * extent + (axis - start if plan.blocked and axis == plan.block else axis)
    return Ahead(load, step, size - 1 - far * (k.extent - 1), position, math.prod(rows), shares)


def _columns_operand(t: Tile) -> Load | None:
    """What a product reads along the columns, if that is an element as it lies."""
    match t.product.body:
        case Apply("mul", args):
            found = [e for e in args if axis_inside(e, t.column)]
            return found[0] if len(found) == 1 and isinstance(found[0], Load) else None
        case _:
            return None


def hints(t: Tile, s: Spot, k: Axis, steps: int) -> tuple[Prefetch, ...]:
    """What a tile fetches while it takes so many steps of its reduction from `k` on."""
    a = t.ahead
    if a is None or steps % a.shares:
        return ()
    share = simplify(at(a.position, mapping_of(t, s, 0, s.column)) * a.shares // a.rows)
    vectors = range(0, s.vectors, max(1, LINE // (t.lanes * t.dtype.itemsize)))
    first, *others = (at(a.load.index[0], mapping_of(t, s, 0, s.column + v * t.lanes)) for v in vectors)
    shifts = [linear(simplify(x - first)) for x in others]
    if any(x is None or x.terms for x in shifts):
        return ()
    beside = [0, *(x.constant for x in shifts if x)]
    far = coefficient(first, k) or 0
    # One expression for all lines: what is added to it is part of an instruction.
    next = apply("min", at(first, {k: Const(0)}) + a.step, a.last - max(beside))
    within = share * (far * k.extent // a.shares) + k * (far // a.shares)
    return tuple(
        Prefetch(a.load.param, simplify(next + within + (x + far * u)), hint="later")
        for x in beside
        for u in range(steps // a.shares)
    )
