"""The ranges of free unknowns: solved where there is one point, otherwise loops with constant extents and few guards.

c·w <= e <= c·w + c - 1      →  w = e // c               (one point: mixed radix, remainders)
a·w >= e and b·w <= f, where a·f - b·e < a·b everywhere
                             →  w = f // b  where a·w >= e     (at most one point)
otherwise                    →  0 <= w < extent, from Fourier-Motzkin projection, where the inequalities hold
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from dlc.kernel.expr import Axis, Expr, axes_in
from dlc.kernel.simplify import Linear
from dlc.kernel.solve.equations import Solved, settled, within
from dlc.kernel.solve.forms import atom, cleared, combine, constant, divided, put, span, touches
from dlc.kernel.solve.inequalities import Row, connected, implied, interval, irredundant, project, ranges_of

# More inequalities than these are not tried against each other, and more bounds not added: what is left out costs time
# in the loops, never correctness.
MOST_COMPARED = 24
MOST_ADDED = 4


@dataclass(frozen=True)
class Squeeze:
    """One way to determine an unknown: sign · (number // divisor) is the only value it can have.

    Attributes:
        rank: How good that is: whether the value always satisfies both bounds, without a quotient, with few negative
            terms and a small constant. Smaller is better.
    """

    unknown: Axis
    number: Linear
    divisor: int
    sign: int
    rank: tuple[bool, bool, int, int]

    @property
    def exact(self) -> bool:
        """Whether there always is a value, not just at most one."""
        return not self.rank[0]

    def value(self) -> Linear:
        """The value as a form."""
        return combine((self.sign, divided(self.number, self.divisor)))

    def affine(self, free: Sequence[Axis]) -> bool:
        """Whether the value has no quotient of free unknowns."""
        return not any(c % self.divisor and touches(atom(e), free) for e, c in self.number.terms)


def pin(solved: Solved) -> Solved:
    """Every free unknown that has at most one value for given other ones is solved for, if that stays affine.

    The inequalities are kept as they are (over the new values), so any quotient is right that is the only candidate.
    """
    while (found := _best(solved)) is not None:
        free = tuple(x for x in solved.free if x != found.unknown)
        solved = solved.assign({found.unknown: found.value()}, free)
    return solved


def _best(solved: Solved) -> Squeeze | None:
    """The best squeeze that leaves affine forms, from the inequalities or else from their projections."""
    found = [s for w in solved.free for s in _squeezes(w, solved.rows) if s.affine(solved.free)]
    if not found:
        for w in solved.free:
            near, atoms = connected(solved.rows, (w,))
            others = [x for x in solved.free if x in atoms and x != w]
            boxes = [row for x in others for row in within(atom(x), x.extent)]
            projected = project((*near, *boxes), others) if others else None
            if projected is not None and len(projected) <= 2 * MOST_COMPARED:
                found += [s for s in _squeezes(w, projected) if s.affine(solved.free)]
    return min(found, key=lambda s: s.rank, default=None)


def _squeezes(w: Axis, rows: Sequence[Row]) -> Iterator[Squeeze]:
    """Pairs of a lower and an upper bound, ranges included, between which at most one integer lies."""
    lower, upper = _bounds(w, (*rows, *within(atom(w), w.extent)))
    for a, e in lower:
        for b, f in upper:
            room = span(combine((a, f), (b, e)))
            if room is None or room[1] >= a * b:
                continue
            exact = a == b and room[0] == a * (a - 1)
            for number, divisor, sign in ((f, b, 1), (e, a, -1)):
                quotient = any(c % divisor for _, c in number.terms)
                negative = sum(c < 0 for _, c in number.terms)
                yield Squeeze(w, number, divisor, sign, (not exact, quotient, negative, abs(number.constant)))


_Bounds: TypeAlias = list[tuple[int, Linear]]


def _bounds(w: Axis, rows: Sequence[Row]) -> tuple[_Bounds, _Bounds]:
    """All (a, e) with a·w + e >= 0, and all (b, f) with f - b·w >= 0, for positive a and b."""
    parts = [(row.coefficient(w), row.without(w)) for row in rows]
    return [(c, e) for c, e in parts if c > 0], [(-c, e) for c, e in parts if c < 0]


def wrap(solved: Solved) -> Solved:
    """Unknowns with exactly one value for any given other ones become quotients of these, if no inequality is left.

    That is how `(i + k) % n` is inverted: i = (u - k) % n. What is left of such an unknown is no affine form any more,
    so this is the last step that changes values, and the others in such a quotient stay.
    """
    kept: set[Axis] = set()
    for w in solved.free:
        rows = [r for r in solved.rows if r.coefficient(w)]
        for squeeze in sorted(_squeezes(w, rows), key=lambda s: s.rank):
            value = squeeze.value()
            if w in kept or not squeeze.exact:
                break
            if not settled([*(put(r, {w: value}) for r in rows), *within(value, w.extent)]):
                solved = solved.assign({w: value}, tuple(x for x in solved.free if x != w))
                kept |= {a for e, _ in value.terms for a in axes_in(e)}
                break
    return solved


def narrow(solved: Solved) -> Solved | None:
    """Free unknowns with the smallest constant ranges, starting from zero; None when there are no points."""
    values: dict[Expr, Linear] = {}
    free: list[Axis] = []
    for w in solved.free:
        limits = interval(solved.rows, w)
        low, high = (0, w.extent - 1) if limits is None else limits
        if low > high:
            return None
        if (low, high) != (0, w.extent - 1):
            new = Axis(w.name, high - low + 1)
            values[w] = combine((1, atom(new)), (low, constant(1))) if high > low else constant(low)
            free += [new] if high > low else []
        else:
            free.append(w)
    if not values:
        return solved
    rows = settled([put(r, values) for r in solved.rows])
    merged: Mapping[Expr, Linear] = {**{e: put(f, values) for e, f in solved.values.items()}, **values}
    return replace(solved, free=tuple(free), values=merged, rows=rows)


def shift(solved: Solved) -> Solved:
    """Free unknowns start where the parameters say, if their range is much smaller then.

    w >= e  →  w = e + w'. With `i//4` and `i%2` both given, i = 4u + 2w' + v for two w', whatever the extent of i.
    """
    for w in solved.free:
        best = min(_shifts(w, solved), key=lambda s: s[0], default=None)
        if best is None:
            continue
        extent, base = best
        new = Axis(f"{w.name}'", extent)
        free = tuple(new if x == w else x for x in solved.free)
        if extent == 1:
            free = tuple(x for x in free if x != new)
        solved = solved.assign({w: combine((1, base), (1, atom(new))) if extent > 1 else base}, free)
    return solved


# A base that needs a division must shorten the loop by at least this factor; bounds of loops cost about that much.
WORTH_A_DIVISION = 2


def _shifts(w: Axis, solved: Solved) -> Iterator[tuple[int, Linear]]:
    """Extents, and bases over the parameters alone, that a free unknown can have instead."""
    lower, upper = _bounds(w, solved.rows)
    for a, e in lower:
        if touches(e, solved.free):
            continue
        base = combine((-1, divided(e, a)))
        for b, f in upper:
            room = span(combine((a, f), (b, e)))
            if room is None or room[1] < 0:
                continue
            extent = room[1] // (a * b) + 1
            plain = all(isinstance(x, Axis) for x, _ in base.terms)
            if extent * (1 if plain else WORTH_A_DIVISION) < w.extent + (not plain):
                yield extent, base


def needed(solved: Solved) -> tuple[Row, ...]:
    """The inequalities that the others and the ranges do not imply."""
    rows = list(irredundant(settled([cleared(row, solved.exact) for row in solved.rows])))
    if len(rows) > MOST_COMPARED:
        return tuple(rows)
    for row in sorted(rows, key=lambda r: -len(r.terms)):
        others = [r for r in rows if r is not row]
        if implied(row, others):
            rows = others
    return tuple(rows)


def outer_bounds(free: Sequence[Axis], rows: Sequence[Row]) -> tuple[Row, ...]:
    """What the inequalities imply for outer loops (the first of `free`) once inner ones are projected away.

    Without them an outer loop would run over values for which the inner loops are empty.
    """
    known = list(rows)
    current: Sequence[Row] = (*rows, *(r for x in free for r in ranges_of((x,))))
    for k in range(len(free) - 1, 0, -1):
        projected = project(current, (free[k],))
        if projected is None or len(projected) > 2 * MOST_COMPARED:
            break
        new = [row for row in settled(projected) if row not in current and touches(row, free[:k])]
        count = 0
        for row in sorted(new, key=lambda r: len(r.terms)):
            if count < MOST_ADDED and not implied(row, [r for r in known if not touches(r, free[k:])]):
                known.append(row)
                count += 1
        current = projected
    return tuple(known[len(rows) :])
