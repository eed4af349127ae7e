"""Guards as loop bounds: a condition that is linear in a loop's axis shortens the loop instead of testing inside it.

for k<3: if k + i >= 1: s   →   for k = max(0, 1 - i) .. 3: s

An equation is two bounds: the loop runs once, or not at all where the quotient is no integer.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.kernel.expr import Apply, Axis, Const, Expr, apply, axes_in, both
from dlc.kernel.loops import For, If, Stmt
from dlc.kernel.schedules.flat import axis_inside
from dlc.kernel.simplify import conjuncts, linear, simplify


def guarded(axes: Sequence[Axis], guard: Expr | None, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Loops over `axes`, outermost first, around the body, which runs only where the guard holds.

    Every part of the guard acts at the innermost of these loops that it depends on.
    """
    pending = list(conjuncts(guard))
    for axis in reversed(axes):
        mine = [g for g in pending if axis in axes_in(g)]
        pending = [g for g in pending if g not in mine]
        lows: list[Expr] = []
        highs: list[Expr] = []
        rest: Expr | None = None
        for g in mine:
            if not bound(g, axis, lows, highs):
                rest = both(rest, g)
        if rest is not None:
            body = (If(rest, body),)
        start: Expr = Const(0)
        stop: Expr = Const(axis.extent)
        for e in lows:
            start = apply("max", start, e)
        for e in highs:
            stop = apply("min", stop, e)
        body = (For(axis, start, stop, body),)
    if pending:
        condition = pending[0]
        for g in pending[1:]:
            condition = apply("and", condition, g)
        body = (If(condition, body),)
    return body


def bound(g: Expr, axis: Axis, lows: list[Expr], highs: list[Expr]) -> bool:
    """Note a condition as the bounds `low <= axis < high` that it means; False when it is no such condition."""
    match g:
        case Apply("ge" | "gt" | "le" | "lt" | "eq" as fn, (x, y)):
            form = linear(x - y)
        case _:
            return False
    if form is None or any(a != axis and axis_inside(a, axis) for a, _ in form.terms):
        return False
    c = form.coefficient(axis)
    rest = form.without(axis).expr()
    if c == 0:
        return False
    # c·axis + rest ⋛ 0 with c > 0, or the mirrored condition
    if c < 0:
        fn = {"ge": "le", "gt": "lt", "le": "ge", "lt": "gt", "eq": "eq"}[fn]
        c, rest = -c, simplify(Const(0) - rest)
    minus = simplify(Const(0) - rest)
    least, behind = simplify((minus + (c - 1)) // c), simplify(minus // c + 1)
    if fn in ("ge", "eq"):
        lows.append(least)
    if fn == "gt":
        lows.append(behind)
    if fn == "lt":
        highs.append(least)
    if fn in ("le", "eq"):
        highs.append(behind)
    return True


def constant_box(axes: Sequence[Axis], guard: Expr | None) -> tuple[tuple[int, int], ...] | None:
    """Where a guard holds, as one range `start <= axis < stop` per axis; None when it is no box of constants.

    An empty box has a range that stops where it starts.
    """
    spans = {a: (0, a.extent) for a in axes}
    for g in conjuncts(guard):
        lows: list[Expr] = []
        highs: list[Expr] = []
        axis = next((a for a in axes_in(g) if a in spans), None)
        if axis is None or not bound(g, axis, lows, highs):
            return None
        starts = [int(e.value) for e in lows if isinstance(e, Const)]
        stops = [int(e.value) for e in highs if isinstance(e, Const)]
        if len(starts) + len(stops) < len(lows) + len(highs):
            return None
        start = min(max(spans[axis][0], *starts, 0), axis.extent)
        spans[axis] = start, max(start, min(spans[axis][1], *stops, axis.extent))
    return tuple(spans[a] for a in axes)
