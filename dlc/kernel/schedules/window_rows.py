"""Rows whose windows overlap: what several of them read is loaded once, as in a depthwise convolution.

    t[y,x] = Σᵣₛ w[r,s]·p[y+r,x+s]      →      for y += 4: b = p[y+1, x .. +16]; t₀ += w[1,0]·b; t₁ += w[0,0]·b; …

A vector that begins anywhere mostly lies across two lines of the nearest cache, and is two loads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlc.kernel.expr import Expr, loads, walk
from dlc.kernel.loops.program import Lanes, Let, Set, Stmt
from dlc.kernel.schedules.flat import axis_inside, coefficient
from dlc.kernel.schedules.tile import Tile

MOST_TERMS = 25
"""Terms of a sum up to which all of them are written out."""
ROWS = 4
"""Rows of such a tile: more share little more of what is loaded."""


def overlap(t: Tile) -> bool:
    """Whether rows of a tile read what others read at other points of a short sum."""
    if t.row is None or t.words or t.packed or t.beside is not None or any(a.limit is not None for a in t.reduced):
        return False
    if math.prod(a.extent for a in t.reduced) > MOST_TERMS:
        return False
    across = [x.index[0] for x in loads(t.product.body) if axis_inside(x, t.column)]
    row = [abs(coefficient(at, t.row) or 0) for at in across]
    inner = [[(abs(coefficient(at, a) or 0), a.extent) for a in t.reduced] for at in across]
    return any(n and any(k and n % k == 0 and n < k * e for k, e in steps) for n, steps in zip(row, inner, strict=True))


def by_loads(steps: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """Variables and what is added to sums, in the order of the vectors that are loaded: each is soon not needed."""
    lets = [x for x in steps if isinstance(x, Let)]
    vectors = {x.local for x in lets if isinstance(x.value, Lanes)}
    terms: dict[frozenset[Expr], list[Stmt]] = {}
    for x in steps:
        if isinstance(x, Set):
            terms.setdefault(frozenset(vectors.intersection(walk(x.value))), []).append(x)
    out: list[Stmt] = [x for x in lets if x.local not in vectors]
    loaded: set[Expr] = set()
    for needed, sums in terms.items():
        out += (x for x in lets if x.local in needed - loaded)
        loaded |= needed
        out += sums
    return tuple(out)
