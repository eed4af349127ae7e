"""Short reductions inside of a long contiguous loop are written out, and their guards become parts of that loop.

    for j: a = 0; for k<3: if 1 <= j+k < n+1: a += x[j+k-1]; r[j] = a
    →
    for j<1: …;   for j = 1 .. n-1: r[j] = 0 + x[j-1] + x[j] + x[j+1];   for j = n-1 .. n: …

What is left in the middle is one statement without a branch, which compilers vectorise: windows that slide over the
innermost dimension, as those of local response normalisation and of pools. Where some terms do not exist because of
another axis, as in the first row of an image, there is a loop without them. Terms are added in their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import product

from dlc.base.types import DType
from dlc.kernel.expr import Apply, Axis, Const, Expr, axes_in, both, substitute
from dlc.kernel.loops.program import For, If, Stmt
from dlc.kernel.nest import Nest, identity
from dlc.kernel.schedules.clip import bound
from dlc.kernel.schedules.flat import coefficient, flat_simplify, positions
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.simplify import conjuncts, simplify

MOST_TERMS = 16
"""Terms of a sum that is written out: as many loads stand in one statement."""
LONG = 8
"""Elements that the middle part of a loop has at least: without branches it is faster even where no vectors fit."""
SHORT = 4
"""The same where there are vectors of as many."""
MOST_CONDITIONS = 2
"""Conditions of other axes: terms at the begin and at the end."""
STEPS = (0, 1, 2)
"""How far loads may move with the loop: compilers make vectors of every second element as well."""


def written_out(
    nest: Nest,
    reduced: Sequence[Axis],
    column: Axis,
    start: Expr,
    dtype: DType,
    general: tuple[Stmt, ...],
    finish: Callable[[Expr], tuple[Stmt, ...]],
    machine: Machine,
) -> tuple[Stmt, ...] | None:
    """The loop over `column` of a reduction; None where it would not gain.

    Args:
        nest: A flat reduction into elements of its own.
        reduced: Its reduction axes, outermost first.
        column: The innermost of its other axes, along which results are contiguous.
        start: What an element has before.
        dtype: Its type.
        general: What computes and stores any element.
        finish: What stores an element of this value.
        machine: What it runs on.
    """
    if any(a.limit is not None for a in (column, *reduced)) or math.prod(a.extent for a in reduced) > MOST_TERMS:
        return None
    steps = [coefficient(p, column) for p in positions(nest.body)]
    if not any(steps) or not all(s in STEPS for s in steps):
        return None
    taps = list(_taps(reduced))
    middle = _middle(nest, taps, column)
    if middle is None or middle[1] - middle[0] < (SHORT if machine.lanes(dtype.itemsize) >= SHORT else LONG):
        return None
    low, high = middle
    terms = [(_elsewhere(nest, tap, column), flat_simplify(substitute(nest.body, tap))) for tap in taps]
    conditions = list(dict.fromkeys(c for c, _ in terms if c is not None))
    if len(conditions) > MOST_CONDITIONS:
        return None

    def loops(left: Sequence[Expr], holding: frozenset[Expr]) -> tuple[Stmt, ...]:
        """The middle part, where conditions hold or not, and others are `left`."""
        if left:
            condition, *rest = left
            return (If(condition, loops(rest, holding | {condition}), loops(rest, holding)),)
        assert nest.reduce is not None
        parts = [term for needed, term in terms if needed is None or needed in holding]
        if start != Const(identity(nest.reduce, dtype)) or not parts:
            parts = [start, *parts]
        value = reduce(lambda a, b: Apply(str(nest.reduce), (a, b)), parts)
        return (For(column, Const(low), Const(high), finish(value)),)

    edges = [For(column, Const(a), Const(b), general) for a, b in ((0, low), (high, column.extent))]
    first, last = (tuple(e for e in [edge] if e.start != e.stop) for edge in edges)
    return (*first, *loops(conditions, frozenset()), *last)


def _taps(reduced: Sequence[Axis]) -> Iterator[Mapping[Expr, Expr]]:
    """What replaces the reduction axes, term by term."""
    for point in product(*(range(a.extent) for a in reduced)):
        yield {a: Const(k) for a, k in zip(reduced, point, strict=True)}


def _elsewhere(nest: Nest, tap: Mapping[Expr, Expr], column: Axis) -> Expr | None:
    """The part of a term's guard that does not depend on the column; None: there is none."""
    where: Expr | None = None
    for part in conjuncts(nest.where):
        here = simplify(substitute(part, tap))
        if here != Const(True) and column not in axes_in(here):
            where = both(where, here)
    return where


def _middle(nest: Nest, taps: Sequence[Mapping[Expr, Expr]], column: Axis) -> tuple[int, int] | None:
    """From where to where along the column all terms exist, as far as it decides; None where that is not known."""
    lows: list[Expr] = [Const(0)]
    highs: list[Expr] = [Const(column.extent)]
    for part in conjuncts(nest.where):
        for tap in taps:
            here = simplify(substitute(part, tap))
            if here != Const(True) and column in axes_in(here) and not bound(here, column, lows, highs):
                return None
    ends = [e.value for e in (*lows, *highs) if isinstance(e, Const)]
    if len(ends) != len(lows) + len(highs):
        return None
    return int(max(ends[: len(lows)])), int(min(ends[len(lows) :]))
