"""Short sums inside of a long contiguous loop are written out, and their guards become parts of that loop.

    for j: a = 0; for k<3: if 1 <= j+k < n+1: a += x[j+k-1]; r[j] = a
    →
    for j<1: …;   for j = 1 .. n-1: r[j] = 0 + x[j-1] + x[j] + x[j+1];   for j = n-1 .. n: …

What is left in the middle is one statement without a branch, which compilers vectorise: windows that slide over the
innermost dimension, as those of local response normalisation. Terms are added in their order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from dlc.kernel.expr import Apply, Axis, Const, Expr, substitute
from dlc.kernel.loops.program import For, Stmt, Store
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.clip import bound
from dlc.kernel.schedules.flat import coefficient, flat_simplify, positions
from dlc.kernel.simplify import conjuncts, simplify

MOST_TERMS = 16
"""Terms of a sum that is written out: as many loads stand in one statement."""
LONG = 32
"""Elements that the middle part of a loop has at least: two of the widest vectors."""


def written_out(
    nest: Nest, reduced: Sequence[Axis], column: Axis, start: Expr, general: tuple[Stmt, ...]
) -> tuple[Stmt, ...] | None:
    """The loop over `column` of a reduction; None where it would not gain.

    Args:
        nest: A flat reduction into elements of its own.
        reduced: Its reduction axes, outermost first.
        column: The innermost of its other axes.
        start: What an element has before.
        general: What computes and stores any element.
    """
    if any(a.limit is not None for a in (column, *reduced)) or math.prod(a.extent for a in reduced) > MOST_TERMS:
        return None
    steps = [coefficient(p, column) for p in positions(nest.body)]
    if coefficient(nest.index[0], column) != 1 or 1 not in steps or not all(s in (0, 1) for s in steps):
        return None
    taps = list(_taps(reduced))
    middle = _middle(nest, taps, column)
    if middle is None or middle[1] - middle[0] < LONG:
        return None
    assert nest.reduce is not None
    value = start
    for tap in taps:
        value = Apply(nest.reduce, (value, flat_simplify(substitute(nest.body, tap))))
    low, high = middle
    parts = ((0, low, general), (low, high, (Store(nest.out, nest.index[0], value),)), (high, column.extent, general))
    return tuple(For(column, Const(a), Const(b), body) for a, b, body in parts if a < b)


def _taps(reduced: Sequence[Axis]) -> Iterator[Mapping[Expr, Expr]]:
    """What replaces the reduction axes, term by term."""
    for point in product(*(range(a.extent) for a in reduced)):
        yield {a: Const(k) for a, k in zip(reduced, point, strict=True)}


def _middle(nest: Nest, taps: Sequence[Mapping[Expr, Expr]], column: Axis) -> tuple[int, int] | None:
    """From where to where along the column all terms exist; None where that depends on something else."""
    lows: list[Expr] = [Const(0)]
    highs: list[Expr] = [Const(column.extent)]
    for part in conjuncts(nest.where):
        for tap in taps:
            here = simplify(substitute(part, tap))
            if here != Const(True) and not bound(here, column, lows, highs):
                return None
    ends = [e.value for e in (*lows, *highs) if isinstance(e, Const)]
    if len(ends) != len(lows) + len(highs):
        return None
    return int(max(ends[: len(lows)])), int(min(ends[len(lows) :]))
