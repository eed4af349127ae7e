"""How often the body of a nest runs in the loops it becomes.

    for i<n, j<n, where i + j < n: …   →   n·(n + 1) / 2

Guards that are loop bounds or steps (see schedules/clip.py) are counted exactly, and so are tests outside of the loops
of a reduction; a test in the innermost loop counts as if it always held. Axes that no guard links multiply. Of linked
axes one is counted in closed form by its bounds, and the others are enumerated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dlc.base.types import Array
from dlc.kernel.expr import Apply, Axis, Const, Expr, axes_in
from dlc.kernel.nest import Nest
from dlc.kernel.scalar import SCALARS
from dlc.kernel.schedules.clip import bound, residue
from dlc.kernel.simplify import conjuncts, is_index, simplify_nest

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
    guards = _folded(conjuncts(nest.where), loops, reduced)
    return math.prod(_points(axes, [g for g in guards if axes_in(g)[0] in axes]) for axes in _linked(loops, guards))


def _folded(guards: Sequence[Expr], loops: Sequence[Axis], reduced: Set[Axis]) -> list[Expr]:
    """The conditions that become bounds or the step of the innermost loop that they depend on; a loop has one step.

    Of the others, those of output axes alone are tested once for all that a reduction adds up.
    """
    found: list[Expr] = []
    stepped: set[Axis] = set()
    for g in guards:
        used = set(axes_in(g))
        inner = next((a for a in reversed(loops) if a in used), None)
        if inner is None:
            continue
        if bound(g, inner, [], []):
            found.append(g)
        elif inner not in stepped and residue(g, inner) is not None:
            stepped.add(inner)
            found.append(g)
        elif reduced and not used & reduced and _is_of_axes(g):
            found.append(g)
    return found


def _is_of_axes(g: Expr) -> bool:
    """Whether a condition compares index expressions."""
    return isinstance(g, Apply) and SCALARS[g.fn].rule == "bool" and all(is_index(a) for a in g.args)


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
    closed = [c for a in axes if (c := _closed(a, [g for g in guards if a in axes_in(g)])) is not None]
    inner = max(closed, key=lambda c: c.axis.extent, default=None)
    outer = tuple(a for a in axes if inner is None or a != inner.axis)
    if math.prod(a.extent for a in outer) > ENUMERATED:
        return whole
    tests = [g for g in guards if inner is None or inner.axis not in axes_in(g)]
    return sum(_on_slab(grid, inner, tests) for grid in _slabs(outer))


@dataclass(frozen=True)
class _Loop:
    """A loop whose length is an expression: from the largest of `lows` to below the least of `highs`, by a step."""

    axis: Axis
    lows: tuple[Expr, ...]
    highs: tuple[Expr, ...]
    first: Expr
    step: int


def _closed(axis: Axis, guards: Sequence[Expr]) -> _Loop | None:
    """The loop of an axis under conditions; None when they are not all bounds or one step."""
    lows: list[Expr] = [Const(0)]
    highs: list[Expr] = [Const(axis.extent)]
    steps = [residue(g, axis) for g in guards if not bound(g, axis, lows, highs)]
    if not steps:
        return _Loop(axis, tuple(lows), tuple(highs), Const(0), 1)
    if len(steps) > 1 or steps[0] is None:
        return None
    return _Loop(axis, tuple(lows), tuple(highs), *steps[0])


def _slabs(axes: tuple[Axis, ...]) -> list[dict[Axis, Array]]:
    """The space of these axes as broadcastable coordinates, cut along the first axis; one empty grid without axes."""
    if not axes:
        return [{}]
    rank = len(axes)
    fixed = {a: np.arange(a.extent).reshape([-1 if k == d else 1 for k in range(rank)]) for d, a in enumerate(axes)}
    first = axes[0].extent
    step = max(1, _SLAB // math.prod(a.extent for a in axes[1:]))
    return [{**fixed, axes[0]: fixed[axes[0]][start : start + step]} for start in range(0, first, step)]


def _on_slab(grid: Mapping[Axis, Array], loop: _Loop | None, tests: Sequence[Expr]) -> int:
    """The sum over a slab of the lengths of the innermost loop, where the tests hold."""
    shape = np.broadcast_shapes(*(a.shape for a in grid.values()))
    length = np.ones(shape, np.int64)
    if loop is not None:
        start = np.max(np.stack([np.broadcast_to(_value(e, grid), shape) for e in loop.lows]), 0)
        stop = np.min(np.stack([np.broadcast_to(_value(e, grid), shape) for e in loop.highs]), 0)
        start = start + (_value(loop.first, grid) - start) % loop.step
        length = np.maximum((stop - start + loop.step - 1) // loop.step, 0)
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
            return np.asarray(SCALARS[fn].value(*(_value(a, grid) for a in args)))
        case _:
            raise AssertionError(e)
