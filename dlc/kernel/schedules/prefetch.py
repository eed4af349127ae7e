"""Hints for what a tile's end reads and writes: lines lie a row apart, which no hardware foresees.

for k: s;  r[…] = f(c, x[…])   →   fetch x[…], r[…];  for k: s;  r[…] = f(c, x[…])
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from dlc.kernel.expr import Axis, Expr, Load, walk
from dlc.kernel.loops.program import Lanes, Prefetch
from dlc.kernel.schedules.flat import axis_inside
from dlc.kernel.schedules.lanes import vectorise
from dlc.kernel.schedules.tile import Spot, Tile

LINE = 64
# Shorter reductions end before the lines arrive; hints would only take time.
SHORTEST = 24


def prefetches(t: Tile, s: Spot) -> tuple[Prefetch, ...]:
    """One hint per line of everything that moves with the tile's rows."""
    if t.row is None or math.prod(a.extent for a in t.reduced) < SHORTEST:
        return ()
    lane = Axis("lane", t.lanes)
    step = max(1, LINE // (t.lanes * t.dtype.itemsize))
    found: dict[Prefetch, None] = {}
    for r in range(s.rows):
        for v in range(0, s.vectors, step):
            mapping: dict[Expr, Expr] = {t.column: s.column + v * t.lanes + lane, t.row: s.row + r}
            for load, write in _touched(t, t.row):
                spot = vectorise(load, mapping, lane, t.dtypes, t.dtype)
                if isinstance(spot, Lanes):
                    found[Prefetch(load.param, spot.first.index[0], write)] = None
    return tuple(found)


def _touched(t: Tile, row: Axis) -> Iterator[tuple[Load, bool]]:
    """Elements that a tile's end reads or writes, in terms of the tile's axes."""
    if t.total is None:
        yield Load(t.product.out, t.product.index), True
    for n in t.followers:
        yield from ((e, False) for e in walk(n.body) if isinstance(e, Load) and axis_inside(e.index[0], row))
        if n.out not in t.scalars:
            yield Load(n.out, n.index), True
