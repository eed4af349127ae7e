"""Short sums whose terms do not all exist at the edges: inside of these, loops have no guards.

    for i: a = 0; for k<3: if k <= i < n+k: a += x[i-k]    →    for i<2: …;  for i = 2 .. n: a = x[i] + …;  for i >= n:

Windows that slide over a tensor whose elements do not lie next to each other, and gradients of such windows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Final

from dlc.kernel.expr import Axis, Const, Expr, axes_in, both, substitute
from dlc.kernel.loops.program import For, Stmt
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.clip import bound
from dlc.kernel.schedules.written_out import LONG, MOST_TERMS
from dlc.kernel.simplify import conjuncts, simplify

Box = Mapping[Axis, tuple[int, int]]
"""From where to where of some axes."""
MOST_SPLIT: Final = 2
"""Axes with edges: each has code of its own before and behind."""
MOST_STEPS: Final = 4
"""Steps of an axis before and behind the middle that have code of their own: which terms exist is known there."""


def all_terms(nest: Nest, shared: Sequence[Axis]) -> Box | None:
    """Where all terms of a nest's sums exist, by axis of its result; None where that is no part worth a loop."""
    reduced = nest.reduction_axes
    sized = all(a.limit is None for a in nest.axes)
    if nest.where is None or not reduced or not sized or math.prod(a.extent for a in reduced) > MOST_TERMS:
        return None
    lows: dict[Axis, list[Expr]] = {}
    highs: dict[Axis, list[Expr]] = {}
    taps = [dict(zip(reduced, map(Const, p), strict=True)) for p in product(*(range(a.extent) for a in reduced))]
    for part in conjuncts(nest.where):
        for tap in taps:
            here = simplify(substitute(part, tap))
            axes = axes_in(here)
            if here == Const(True):
                continue
            if len(axes) != 1 or axes[0] not in shared:
                return None
            axis = axes[0]
            if not bound(here, axis, lows.setdefault(axis, [Const(0)]), highs.setdefault(axis, [axis.stop])):
                return None
    if not lows or len(lows) > MOST_SPLIT:
        return None
    found: dict[Axis, tuple[int, int]] = {}
    for axis, low in lows.items():
        starts = [e.value for e in low if isinstance(e, Const)]
        stops = [e.value for e in highs[axis] if isinstance(e, Const)]
        if len(starts) + len(stops) < len(low) + len(highs[axis]):
            return None
        found[axis] = int(max(starts)), int(min(stops))
    return found if all(b - a >= LONG and 2 * (b - a) >= x.extent for x, (a, b) in found.items()) else None


def split(
    axes: Sequence[Axis], box: Box, where: Expr | None, body: Callable[[Expr | None], tuple[Stmt, ...]]
) -> tuple[Stmt, ...]:
    """Loops over axes, outermost first, in parts: inside of a box, and each step of few outside of it.

    Args:
        axes: The loops.
        box: Where a guard holds, as far as these axes decide.
        where: The guard.
        body: What is inside of all loops, for what is left of the guard.
    """
    if not axes:
        return body(where)
    axis, *rest = axes
    if axis not in box:
        return (For(axis, Const(0), axis.stop, split(rest, box, where, body)),)
    start, stop = box[axis]
    edges = [(0, start), (stop, axis.extent)]
    if sum(b - a for a, b in edges) <= MOST_STEPS:
        edges = [(k, k + 1) for a, b in edges for k in range(a, b)]
    found: list[Stmt] = []
    for a, b in sorted([(start, stop), *edges]):
        if (a, b) == (start, stop):
            left = _of(part for part in conjuncts(where) if axis not in axes_in(part))
        elif b - a == 1:
            left = _of(simplify(substitute(part, {axis: Const(a)})) for part in conjuncts(where))
        else:
            left = where
        found += (For(axis, Const(a), Const(b), split(rest, box, left, body)),) if a < b else ()
    return tuple(found)


def _of(parts: Iterable[Expr]) -> Expr | None:
    where: Expr | None = None
    for part in parts:
        where = both(where, None if part == Const(True) else part)
    return where
