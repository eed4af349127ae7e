"""Systems of integer inequalities `Σ coefficient · atom + constant >= 0`: projection by Fourier-Motzkin elimination.

Eliminating x combines every lower bound a·x + e >= 0 with every upper bound f - b·x >= 0 to b·e + a·f >= 0. What comes
out is implied over the rationals; coefficients are then divided by their common divisor and the constant rounded
down, which is exact because all atoms are integers. (G. B. Dantzig and B. C. Eaves, Fourier-Motzkin elimination and
its dual, 1973; A. Schrijver, Theory of linear and integer programming, section 12.2.)
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

from dlc.kernel.expr import Apply, Const, Expr
from dlc.kernel.simplify import Interval, Linear, bounds, linear
from dlc.kernel.solve.forms import atom, combine, constant

LARGEST_SYSTEM = 500
"""Inequalities that an elimination may come to: beyond them callers use the ranges of the atoms instead."""

Row = Linear
"""A form that is at least zero."""

IMPOSSIBLE = constant(-1)


def tightened(row: Row) -> Row:
    """The same inequality over the integers with coprime coefficients."""
    divisor = math.gcd(*(c for _, c in row.terms))
    if divisor < 2:
        return row
    return Linear(tuple((e, c // divisor) for e, c in row.terms), row.constant // divisor)


def irredundant(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Tightened rows without those that always hold or that a parallel one implies; one row when none can hold."""
    best: dict[frozenset[tuple[Expr, int]], Row] = {}
    for row in map(tightened, rows):
        if not row.terms:
            if row.constant < 0:
                return (IMPOSSIBLE,)
            continue
        key = frozenset(row.terms)
        if key not in best or row.constant < best[key].constant:
            best[key] = row
    return tuple(best.values())


def eliminate(rows: Sequence[Row], e: Expr) -> tuple[Row, ...] | None:
    """The projection along an atom; None when it is beyond LARGEST_SYSTEM."""
    coefficients = [row.coefficient(e) for row in rows]
    lower = [(c, row) for c, row in zip(coefficients, rows, strict=True) if c > 0]
    upper = [(-c, row) for c, row in zip(coefficients, rows, strict=True) if c < 0]
    rest = [row for c, row in zip(coefficients, rows, strict=True) if c == 0]
    if len(rest) + len(lower) * len(upper) > LARGEST_SYSTEM:
        return None
    return irredundant([*rest, *(combine((b, low), (a, high)) for a, low in lower for b, high in upper)])


def project(rows: Sequence[Row], gone: Iterable[Expr]) -> tuple[Row, ...] | None:
    """The projection along several atoms, cheapest first; None when it is beyond LARGEST_SYSTEM."""
    pending = set(gone)
    out: tuple[Row, ...] | None = irredundant(rows)
    while pending and out is not None:
        signs = {e: [0, 0] for e in pending}
        for row in out:
            for e, c in row.terms:
                if e in signs:
                    signs[e][c > 0] += 1
        # Ties fall to the first in printed order, so that equal systems give equal results in every run.
        e = min(pending, key=lambda e: (signs[e][0] * signs[e][1] - sum(signs[e]), repr(e)))
        pending.discard(e)
        out = eliminate(out, e)
    return out


def connected(rows: Sequence[Row], start: Iterable[Expr]) -> tuple[tuple[Row, ...], frozenset[Expr]]:
    """The rows that share atoms with `start`, directly or through others, and all their atoms."""
    seen = set(start)
    mine: list[Row] = []
    pending = list(rows)
    grown = True
    while grown:
        near = [row for row in pending if any(e in seen for e, _ in row.terms)]
        pending = [row for row in pending if not any(e in seen for e, _ in row.terms)]
        mine += near
        size = len(seen)
        seen |= {e for row in near for e, _ in row.terms}
        grown = len(seen) > size
    return tuple(mine), frozenset(seen)


def ranges_of(atoms: Iterable[Expr]) -> tuple[Row, ...]:
    """What is known of atoms on their own: their bounds, and for a quotient c·(x // c) <= x < c·(x // c) + c."""
    rows: list[Row] = []
    pending, seen = list(atoms), set[Expr]()
    while pending:
        e = pending.pop()
        if e in seen:
            continue
        seen.add(e)
        b = bounds(e)
        if b is not None:
            rows += [combine((1, atom(e)), (-b[0], constant(1))), combine((-1, atom(e)), (b[1], constant(1)))]
        match e:
            case Apply("floordiv", (x, Const(int() as c))) if c > 0 and (form := linear(x)) is not None:
                rest = combine((1, form), (-c, atom(e)))
                rows += [rest, combine((-1, rest), (c - 1, constant(1)))]
                pending += [a for a, _ in form.terms]
            case _:
                pass
    return tuple(rows)


def system_of(rows: Sequence[Row], start: Iterable[Expr]) -> tuple[tuple[Row, ...], frozenset[Expr]]:
    """All that bears on some atoms: the rows connected with them and what is known of every atom in these."""
    mine, atoms = connected(rows, start)
    known = ranges_of(sorted(atoms, key=repr))
    return (*mine, *known), frozenset(e for row in (*mine, *known) for e, _ in row.terms) | atoms


def interval(rows: Sequence[Row], e: Expr) -> Interval | None:
    """Bounds that the rows and the ranges of their atoms imply for an atom; low > high where nothing satisfies them."""
    system, atoms = system_of(rows, (e,))
    projected = project(system, atoms - {e})
    if projected is None:
        return bounds(e)
    if IMPOSSIBLE in projected:
        return 0, -1
    lows = [-(row.constant // row.coefficient(e)) for row in projected if row.coefficient(e) > 0]
    highs = [row.constant // -row.coefficient(e) for row in projected if row.coefficient(e) < 0]
    return (max(lows), min(highs)) if lows and highs else None


def impossible(rows: Sequence[Row], start: Collection[Expr]) -> bool:
    """Whether the rows connected with some atoms are seen to have no solution."""
    system, atoms = system_of(rows, start)
    projected = project(system, atoms)
    return projected is not None and IMPOSSIBLE in projected


def implied(row: Row, rows: Sequence[Row]) -> bool:
    """Whether other rows and the ranges of the atoms imply a row, by its negation -row - 1 >= 0."""
    negated = combine((-1, row), (-1, constant(1)))
    return impossible((*rows, negated), [e for e, _ in row.terms])
