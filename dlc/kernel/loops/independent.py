"""Which loops may run their iterations at the same time, and what each iteration then needs for itself.

    for i: for j: r[64*i + j] = p[i]            iterations write elements of their own: 64*i to 64*i + 63
    for i: t[0] = p[i]; r[i] = t[0]*t[0]        the same if each iteration has a `t` of its own

A subscript is a sum of terms `c*x`. Those that the loop moves less than one step lie within a range, the others are
multiples of some number: iterations touch different elements where the ranges of all of them lie apart within that.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dlc.kernel.expr import Apply, Axis, Expr, Load, axes_in, substitute
from dlc.kernel.loops.program import (
    Block,
    For,
    If,
    Lanes,
    Let,
    Set,
    Stmt,
    Store,
    exprs_of,
    subexpressions,
    walk_stmts,
    writes,
)
from dlc.kernel.simplify import bounds, linear, simplify


@dataclass(frozen=True)
class _Access:
    """Elements that one iteration touches: `lanes` from `at` on, in terms of what moves inside of the loop."""

    tensor: str
    at: Expr
    lanes: int
    moving: frozenset[Axis]


def own_buffers(loop: For, local: Collection[str]) -> tuple[str, ...] | None:
    """The buffers that each iteration must have to itself so that all may run at the same time; None: they may not.

    Args:
        loop: Its axis and those inside have ranges of their own; what it uses from outside does not change meanwhile.
        local: Buffers that nothing outside of the loop's group of statements touches.
    """
    declared = {s.local.name for s in walk_stmts(loop.body) if isinstance(s, Let)}
    if any(isinstance(s, Set) and s.local.name not in declared for s in walk_stmts(loop.body)):
        return None
    count = most_iterations(loop.start, loop.stop, loop.step, loop.axis.extent)
    if count is None:
        return None
    number = Axis("#", count)
    written = writes(loop.body)
    found: dict[str, list[_Access]] = {}
    for access in _accesses(loop.body, {loop.axis: loop.start + number * loop.step}, frozenset({number}), [0]):
        if access.tensor in written:
            found.setdefault(access.tensor, []).append(access)
    shared = {name for name, accesses in found.items() if not _apart(accesses, number)}
    if not shared <= set(local) or not all(defined_first(loop.body, name) for name in shared):
        return None
    return tuple(name for name in found if name in shared)


GRAIN: Final = 64
"""Iterations of a short loop that stay together: several vectors and whole lines of cache, whatever their size."""


def grain(loop: For) -> int:
    """How many iterations of a parallel loop run on one thread at least, the last ones aside; their number is fixed.

    Compilers make vectors of statements on scalars, and compute what is left behind the last vector by itself, perhaps
    rounded in another way: where threads share the iterations, that must be the same elements as on one thread.
    """
    return GRAIN if rounds(loop.body) <= GRAIN and not any(map(_wide, walk_stmts(loop.body))) else 1


def rounds(body: tuple[Stmt, ...]) -> int:
    """How often the innermost statements run, each time that the outermost do."""
    return max(map(_rounds, body), default=1)


def _rounds(s: Stmt) -> int:
    match s:
        case For(axis, _, _, inner):
            return axis.extent * rounds(inner)
        case If(_, then, otherwise):
            return max(rounds(then), rounds(otherwise))
        case Block(inner):
            return rounds(inner)
        case _:
            return 1


def _wide(s: Stmt) -> bool:
    """Whether a statement is about vectors."""
    match s:
        case Let(local, _) | Set(local, _):
            return local.lanes > 1
        case Store(_, _, _, lanes):
            return lanes > 1
        case _:
            return False


def most_iterations(start: Expr, stop: Expr, step: int, extent: int) -> int | None:
    """How often a loop runs at most; None where that is not known."""
    match stop:
        case Apply("min", (a, b)):
            found = [n for x in (a, b) if (n := most_iterations(start, x, step, extent)) is not None]
            return min(found, default=None)
        case _:
            span, first = bounds(simplify(stop - start)), bounds(start)
            lengths = [*([span[1]] if span else []), *([extent - first[0]] if first else [])]
            return max(0, -(-min(lengths) // step)) if lengths else None


def _accesses(
    body: tuple[Stmt, ...], values: Mapping[Axis, Expr], moving: frozenset[Axis], names: list[int]
) -> Iterator[_Access]:
    """Everything that statements read or write; `values` are those of axes in terms of the `moving` ones."""
    for s in body:
        for e in subexpressions(exprs_of(s)):
            match e:
                case Lanes(Load(tensor, (at,))):
                    yield _Access(tensor, substitute(at, values), e.span, moving)
                case Load(tensor, (at,)):
                    yield _Access(tensor, substitute(at, values), 1, moving)
                case _:
                    pass
        match s:
            case For(axis, start, stop, inner, step):
                first, last = (substitute(e, values) for e in (start, stop))
                count = most_iterations(first, last, step, axis.extent)
                names[0] += 1
                # Of unknown length it reaches anywhere.
                number = Axis(f"#{names[0]}", count if count is not None else 1 << 40)
                yield from _accesses(inner, {**values, axis: first + number * step}, moving | {number}, names)
            case If(_, then, otherwise):
                yield from _accesses(then, values, moving, names)
                yield from _accesses(otherwise, values, moving, names)
            case Block(inner):
                yield from _accesses(inner, values, moving, names)
            case Store(tensor, at, _, lanes):
                yield _Access(tensor, substitute(at, values), lanes, moving)
            case _:
                pass


@dataclass(frozen=True)
class _Reach:
    """Where an access lies: fixed terms + step * number + first + [0, length - 1] + any multiples of `units`."""

    fixed: frozenset[tuple[Expr, int]]
    step: int
    first: int
    length: int
    units: tuple[int, ...]


def _apart(accesses: Collection[_Access], number: Axis) -> bool:
    """Whether no two iterations touch the same element.

    With elements at f + s*n + [0, l), up to multiples of u, those of different n are different if l <= s and all of
    them lie within u.
    """
    found = [_reach(access, number) for access in accesses]
    reaches = [r for r in found if r is not None]
    if len(reaches) < len(found) or len({r.step for r in reaches}) > 1:
        return False
    step = abs(reaches[0].step)
    unit = math.gcd(*(u for r in reaches for u in r.units))
    # Rows that are written out one by one differ by constants.
    start = min(r.first for r in reaches)
    unit = math.gcd(unit, min((d for r in reaches if (d := r.first - start) >= step * number.extent), default=0))
    if len({frozenset((e, c) for e, c in r.fixed if not unit or c % unit) for r in reaches}) > 1:
        return False
    firsts = [(r.first - start) % unit if unit else r.first - start for r in reaches]
    length = max(f + r.length for f, r in zip(firsts, reaches, strict=True)) - min(firsts)
    return length <= step and (not unit or step * (number.extent - 1) + length <= unit)


def _reach(access: _Access, number: Axis) -> _Reach | None:
    form = linear(access.at)
    moved = form.coefficient(number) if form else 0
    if form is None or not moved:
        return None
    step = abs(moved)
    # Counted from the other end where it falls.
    first = form.constant + min(0, moved * (number.extent - 1))
    length, fixed, units = access.lanes, set[tuple[Expr, int]](), list[int]()
    for atom, c in form.without(number).terms:
        inside = set(axes_in(atom)) & access.moving
        if not inside:
            fixed.add((atom, c))
        elif number in inside:
            return None
        elif abs(c) >= step:
            units.append(c)
        elif (span := bounds(atom)) is None:
            return None
        else:
            first += min(span[0] * c, span[1] * c)
            length += (span[1] - span[0]) * abs(c)
    return _Reach(frozenset(fixed), moved, first, length, tuple(units))


def defined_first(body: tuple[Stmt, ...], name: str) -> bool:
    """Whether statements write a buffer before they read it; what loops have to themselves is no concern of others."""
    return _defined(body, name, False) is not None


def _defined(body: tuple[Stmt, ...], name: str, before: bool) -> bool | None:
    """Whether a buffer has been written when statements have run, if it was `before`; None: one reads it earlier."""
    for s in body:
        if not before and any(isinstance(e, Load) and e.param == name for e in subexpressions(exprs_of(s))):
            return None
        after: bool | None = before
        match s:
            case For(own=own) if name in own:
                pass
            case For(_, _, _, inner) | Block(inner):
                after = _defined(inner, name, before)
            case If(_, then, otherwise):
                ends = _defined(then, name, before), _defined(otherwise, name, before)
                after = None if None in ends else all(ends)
            case Store(out, _, _, _) if out == name:
                after = True
            case _:
                pass
        if after is None:
            return None
        before = after
    return before
