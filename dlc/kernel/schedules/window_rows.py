"""Rows whose windows overlap: what several of them read is loaded once, as in a depthwise convolution.

    t[y,x] = Σᵣₛ w[r,s]·p[y+r,x+s]      →      for y += 4: b = p[y+1, x .. +16]; t₀ += w[1,0]·b; t₁ += w[0,0]·b; …

A vector that begins anywhere mostly lies across two lines of the nearest cache, and is two loads.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from dlc.base.types import DType
from dlc.kernel.expr import Axis, Expr, axes_in, loads, walk
from dlc.kernel.loops.program import Lanes, Let, Local, Set, Stmt
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.flat import axis_inside, coefficient
from dlc.kernel.schedules.tile import Tile

MOST_TERMS = 25
"""Terms of a sum up to which all of them are written out."""
LEAST_SUMS, MOST_SUMS = 4, 12
"""Sums of windows that are added up at the same time: each is a vector in a register."""
ROWS = 4
"""Rows of such a tile: more share little more of what is loaded."""


def overlap(t: Tile) -> bool:
    """Whether rows of a tile read what others read at other points of a short sum."""
    if t.row is None or t.words or t.packed or t.beside is not None or any(a.limit is not None for a in t.reduced):
        return False
    if math.prod(a.extent for a in t.reduced) > MOST_TERMS:
        return False
    across = [x.index[0] for x in loads(t.product.body) if axis_inside(x, t.column)]
    return any(_meets(at, t.row, t.reduced) for at in across)


def window_axes(nest: Nest, shared: Sequence[Axis], reduced: Sequence[Axis]) -> tuple[Axis, ...]:
    """The last of some output axes along which windows overlap that lie close together, as those of a weight's sums."""
    found: list[Axis] = []
    for a in reversed(shared):
        moving = [x.index[0] for x in loads(nest.body) if axis_inside(x, a)]
        if a.limit is not None or not moving or not all(_meets(at, a, reduced) for at in moving):
            break
        found.insert(0, a)
    still = any(not set(found) & set(axes_in(*x.index)) for x in loads(nest.body))
    fits = LEAST_SUMS <= math.prod(a.extent for a in found) <= MOST_SUMS
    return tuple(found) if found and still and fits else ()


def _meets(at: Expr, moved: Axis, inner: Sequence[Axis]) -> bool:
    """Whether a step along an axis reaches what the axes of a sum read at other points."""
    step = abs(coefficient(at, moved) or 0)
    others = ((abs(coefficient(at, a) or 0), a.extent) for a in inner)
    return step > 0 and any(k and step % k == 0 and step < k * extent for k, extent in others)


def loaded_once(e: Expr, dtype: DType, names: dict[Expr, Local]) -> list[Let]:
    """Variables for the vectors of an expression that have none among `names` yet."""
    new = [x for x in dict.fromkeys(walk(e)) if isinstance(x, Lanes) and x.step == 1 and x not in names]
    found = [Let(Local(f"b{len(names) + k}", dtype, x.lanes), x) for k, x in enumerate(new)]
    names.update((let.value, let.local) for let in found)
    return found


def by_loads(steps: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """Variables and what is added to sums, in the order of the vectors that are loaded: each is soon not needed."""
    lets = {x.local: x for x in steps if isinstance(x, Let)}
    vectors = {local for local, x in lets.items() if isinstance(x.value, Lanes)}
    terms = [(x, vectors.intersection(walk(x.value))) for x in steps if isinstance(x, Set)]
    uses = Counter(v for _, needed in terms for v in needed)
    # Of the vectors of a term, the one of the fewest terms: those of the other are never far apart.
    together: dict[Expr | None, list[Stmt]] = {}
    for x, needed in terms:
        together.setdefault(min(needed, key=lambda v: (uses[v], v.name), default=None), []).append(x)
    out: list[Stmt] = [x for x in lets.values() if x.local not in vectors]
    loaded: set[Expr] = set()
    for sums in together.values():
        for x in sums:
            needed = vectors.intersection(walk(x.value) if isinstance(x, Set) else ()) - loaded
            out += (let for local, let in lets.items() if local in needed)
            out.append(x)
            loaded |= needed
    return tuple(out)
