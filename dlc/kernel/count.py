"""How often the body of a nest runs in the loops it becomes.

    for i<n, j<n, where i + j < n: …   →   n·(n + 1) / 2

Guards that are loop bounds (see schedules/clip.py) are counted exactly; a guard that stays a test inside the loops
counts as if it always held. Axes that no guard links multiply. Of linked axes one is counted in closed form by its
bounds, and the others are enumerated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from dlc.kernel.expr import Apply, Axis, Const, Expr, axes_in
from dlc.kernel.nest import Nest
from dlc.kernel.scalar import SCALARS
from dlc.kernel.schedules.clip import bound
from dlc.kernel.simplify import conjuncts, simplify_nest
from dlc.types import Array

ENUMERATED = 10_000_000
"""Points of linked axes that are enumerated at most; larger sets count as if their guards always held."""
_SLAB = 1 << 20


def iterations(nest: Nest) -> int:
    """Executions of the body, exact unless more than `ENUMERATED` points of linked axes would have to be looked at."""
    nest = simplify_nest(nest)
    if nest.where == Const(False) or not all(a.extent > 0 for a in nest.axes):
        return 0
    reduced = set(nest.reduction_axes)
    loops = [*(a for a in nest.axes if a not in reduced), *nest.reduction_axes]
    guards = [g for g in conjuncts(nest.where) if _is_bound(g, loops)]
    return math.prod(_points(axes, [g for g in guards if axes_in(g)[0] in axes]) for axes in _linked(loops, guards))


def _is_bound(guard: Expr, loops: Sequence[Axis]) -> bool:
    """Whether a condition becomes a bound of the innermost loop that it depends on."""
    found = set(axes_in(guard))
    inner = next((a for a in reversed(loops) if a in found), None)
    return inner is not None and bound(guard, inner, [], [])


def _linked(axes: Sequence[Axis], guards: Sequence[Expr]) -> list[tuple[Axis, ...]]:
    """The axes in sets that no guard links to one another."""
    leader = {a: a for a in axes}

    def find(a: Axis) -> Axis:
        while leader[a] != a:
            a = leader[a]
        return a

    for g in guards:
        for a, b in pairwise(axes_in(g)):
            leader[find(a)] = find(b)
    sets: dict[Axis, list[Axis]] = {}
    for a in axes:
        sets.setdefault(find(a), []).append(a)
    return [tuple(s) for s in sets.values()]


def _points(axes: tuple[Axis, ...], guards: Sequence[Expr]) -> int:
    """The points of these axes at which all guards hold."""
    whole = math.prod(a.extent for a in axes)
    if not guards:
        return whole
    solved = [a for a in axes if all(bound(g, a, [], []) for g in guards if a in axes_in(g))]
    inner = max(solved, key=lambda a: a.extent, default=None)
    outer = tuple(a for a in axes if a != inner)
    if math.prod(a.extent for a in outer) > ENUMERATED:
        return whole
    lows: list[Expr] = [Const(0)]
    highs: list[Expr] = [Const(1 if inner is None else inner.extent)]
    tests = [g for g in guards if inner is None or not (inner in axes_in(g) and bound(g, inner, lows, highs))]
    return sum(_on_slab(grid, lows, highs, tests) for grid in _slabs(outer))


def _slabs(axes: tuple[Axis, ...]) -> list[dict[Axis, Array]]:
    """The space of these axes as broadcastable coordinates, cut along the first axis; one empty grid without axes."""
    if not axes:
        return [{}]
    rank = len(axes)
    fixed = {a: np.arange(a.extent).reshape([-1 if k == d else 1 for k in range(rank)]) for d, a in enumerate(axes)}
    first = axes[0].extent
    step = max(1, _SLAB // math.prod(a.extent for a in axes[1:]))
    return [{**fixed, axes[0]: fixed[axes[0]][start : start + step]} for start in range(0, first, step)]


def _on_slab(grid: Mapping[Axis, Array], lows: Sequence[Expr], highs: Sequence[Expr], tests: Sequence[Expr]) -> int:
    """The sum over a slab of the lengths of the innermost loop, where the tests hold."""
    shape = np.broadcast_shapes(*(a.shape for a in grid.values()))
    length = np.broadcast_to(np.int64(0), shape)
    start, stop = _value(lows[0], grid), _value(highs[0], grid)
    for e in lows[1:]:
        start = np.maximum(start, _value(e, grid))
    for e in highs[1:]:
        stop = np.minimum(stop, _value(e, grid))
    length = np.broadcast_to(np.maximum(stop - start, 0), shape)
    for g in tests:
        length = length * _value(g, grid)
    return int(length.sum())


def _value(e: Expr, grid: Mapping[Axis, Array]) -> Array:
    """An index expression or a comparison of two on a grid."""
    match e:
        case Const(v):
            return np.asarray(v)
        case Axis():
            return grid[e]
        case Apply(fn, args):
            return np.asarray(SCALARS[fn].numpy(*(_value(a, grid) for a in args)))
        case _:
            raise AssertionError(e)
