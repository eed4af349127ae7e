"""Guards as loop bounds: a condition that is linear in a loop's axis shortens the loop instead of testing inside it.

for k<3: if k + i >= 1: s   →   for k = max(0, 1 - i) .. 3: s

An equation is two bounds: the loop runs once, or not at all where the quotient is no integer. A remainder that must
have one value is a step.

for k<9: if (k + i) % 2 == 0: s   →   for k = -i % 2 .. 9 step 2: s
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dlc.kernel.expr import Apply, Axis, Const, Expr, apply, axes_in, both
from dlc.kernel.loops.program import For, If, Stmt
from dlc.kernel.schedules.flat import axis_inside
from dlc.kernel.simplify import MIRRORED, conjuncts, linear, simplify


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
        step: tuple[Expr, int] | None = None
        for g in mine:
            if bound(g, axis, lows, highs):
                continue
            found = residue(g, axis) if step is None else None
            step = found or step
            rest = rest if found is not None else both(rest, g)
        if rest is not None:
            body = (If(rest, body),)
        start, stop = _within(axis, lows, highs)
        if step is not None:
            start = simplify(start + (step[0] - start) % step[1])
        body = (For(axis, start, stop, body, 1 if step is None else step[1]),)
    if pending:
        condition = pending[0]
        for g in pending[1:]:
            condition = apply("and", condition, g)
        body = (If(condition, body),)
    return body


def _within(axis: Axis, lows: Sequence[Expr], highs: Sequence[Expr]) -> tuple[Expr, Expr]:
    """The range of an axis from the largest of its bounds up to the least."""
    start: Expr = Const(0)
    stop: Expr = axis.stop
    for e in lows:
        start = apply("max", start, e)
    for e in highs:
        stop = apply("min", stop, e)
    return start, stop


def divided(axis: Axis, guard: Expr, body: tuple[Stmt, ...], otherwise: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """A loop that does one thing where a guard holds and another where it does not: loops one behind the other.

    A guard that does not mean a range of the axis is tested in a single one.
    """
    lows: list[Expr] = []
    highs: list[Expr] = []
    if axis.limit is not None or not all(bound(g, axis, lows, highs) for g in conjuncts(guard)):
        return (For(axis, Const(0), axis.stop, (If(guard, body, otherwise),)),)
    start, stop = _within(axis, lows, highs)
    if lows:
        start = apply("min", start, axis.extent)
    if highs:
        stop = apply("max", stop, start)
    start, stop = simplify(start), simplify(stop)
    parts = ((Const(0), start, otherwise), (start, stop, body), (stop, axis.stop, otherwise))
    return tuple(For(axis, a, b, inner) for a, b, inner in parts if a != b)


def bound(g: Expr, axis: Axis, lows: list[Expr], highs: list[Expr]) -> bool:
    """Note a condition as the bounds `low <= axis < high` that it means; False when it is no such condition.

    The condition is linear in the axis, or in one quotient by a constant of what is linear in it.
    """
    match g:
        case Apply("ge" | "gt" | "le" | "lt" | "eq" as fn, (x, y)):
            form = linear(x - y)
        case _:
            return False
    if form is None:
        return False
    inside = [(atom, c) for atom, c in form.terms if axis_inside(atom, axis)]
    if len(inside) != 1:
        return False
    atom, c = inside[0]
    rest = form.without(atom).expr()
    # c·atom + rest ⋛ 0 with c > 0, or the mirrored condition
    if c < 0:
        fn = MIRRORED[fn]
        c, rest = -c, simplify(Const(0) - rest)
    minus = simplify(Const(0) - rest)
    least, behind = simplify((minus + (c - 1)) // c), simplify(minus // c + 1)
    low = {"ge": least, "gt": behind, "eq": least}.get(fn)
    high = {"lt": least, "le": behind, "eq": behind}.get(fn)
    return _between(atom, axis, low, high, lows, highs)


def _between(atom: Expr, axis: Axis, low: Expr | None, high: Expr | None, lows: list[Expr], highs: list[Expr]) -> bool:
    """Note `low <= atom < high` as bounds of the axis."""
    match atom:
        case Axis():
            lows += [] if low is None else [low]
            highs += [] if high is None else [high]
            return True
        case Apply("floordiv", (x, Const(int() as d))) if d > 0:
            # low <= x // d  ⇔  low·d <= x, and x // d < high  ⇔  x < high·d
            found: tuple[list[Expr], list[Expr]] = ([], [])
            parts = (*(() if low is None else (x >= low * d,)), *(() if high is None else (x < high * d,)))
            if not all(bound(p, axis, *found) for p in parts):
                return False
            lows += found[0]
            highs += found[1]
            return True
        case _:
            return False


def residue(g: Expr, axis: Axis) -> tuple[Expr, int] | None:
    """(r, m) for a condition that holds exactly where `axis` is r modulo m; None for any other.

    a·axis + rest ≡ s (mod m)  ⇔  axis ≡ a⁻¹·(s - rest), if a and m have no common factor.
    """
    match g:
        case Apply("eq", (Apply("mod", (x, Const(int() as m))), Const(int() as s))) if m > 1 and 0 <= s < m:
            form = linear(x)
        case _:
            return None
    if form is None or any(a != axis and axis_inside(a, axis) for a, _ in form.terms):
        return None
    a = form.coefficient(axis)
    if not a or math.gcd(a, m) != 1:
        return None
    return simplify((form.without(axis).expr() * -1 + s) * pow(a, -1, m) % m), m
