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

_Vectors = dict[tuple[int, ...], tuple[int, int]]
"""Coprime coefficients → the constant, and the set of inequalities that it comes from as bits."""


def irredundant(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Tightened rows without those that always hold or that a parallel one implies; one row when none can hold."""
    return project(tuple(rows), ()) or ()


def project(rows: Sequence[Row], gone: Iterable[Expr]) -> tuple[Row, ...] | None:
    """The projection along several atoms, cheapest first; None when it is beyond LARGEST_SYSTEM."""
    atoms = tuple(dict.fromkeys(e for row in rows for e, _ in row.terms))
    place = {e: k for k, e in enumerate(atoms)}
    vectors: _Vectors = {}
    for n, row in enumerate(rows):
        coefficients = [0] * len(atoms)
        for e, c in row.terms:
            coefficients[place[e]] = c
        if not _note(vectors, coefficients, row.constant, 1 << n):
            return (IMPOSSIBLE,)
    pending = {place[e] for e in gone if e in place}
    done = 0
    while pending:
        column = min(pending, key=lambda k: (_growth(vectors, k), k))
        pending.discard(column)
        done += 1
        after = _eliminate(vectors, column, done)
        if after is None or len(after) > LARGEST_SYSTEM:
            return (IMPOSSIBLE,) if after is None else None
        vectors = after
    return tuple(
        Linear(tuple((e, c) for e, c in zip(atoms, key, strict=True) if c), low) for key, (low, _) in vectors.items()
    )


def _note(vectors: _Vectors, coefficients: Sequence[int], constant: int, history: int) -> bool:
    """Add an inequality, tightened to coprime coefficients; False when it cannot hold."""
    divisor = math.gcd(*coefficients)
    if divisor == 0:
        return constant >= 0
    key = tuple(coefficients) if divisor == 1 else tuple(c // divisor for c in coefficients)
    constant //= divisor
    known = vectors.get(key)
    if known is None or constant < known[0]:
        vectors[key] = constant, history
    return True


def _growth(vectors: _Vectors, column: int) -> int:
    lower = sum(key[column] > 0 for key in vectors)
    upper = sum(key[column] < 0 for key in vectors)
    return lower * upper - lower - upper


def _eliminate(vectors: _Vectors, column: int, done: int) -> _Vectors | None:
    """The projection along a column; None when nothing satisfies it.

    What comes from more than `done` + 1 inequalities is implied by the rest (D. A. Kohler, 1967) and left out.
    """
    out: _Vectors = {key: entry for key, entry in vectors.items() if key[column] == 0}
    upper = [(key, *entry) for key, entry in vectors.items() if key[column] < 0]
    for low, (e, first) in vectors.items():
        a = low[column]
        if a <= 0:
            continue
        for high, f, second in upper:
            b, history = -high[column], first | second
            if history.bit_count() > done + 1:
                continue
            combined = [b * x + a * y for x, y in zip(low, high, strict=True)]
            if not _note(out, combined, b * e + a * f, history):
                return None
            if len(out) > LARGEST_SYSTEM:
                return out
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
