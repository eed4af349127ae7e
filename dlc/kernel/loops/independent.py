"""Which loops may run their iterations at the same time, and what each iteration then needs for itself.

    for i: for j: r[64*i + j] = p[i]            iterations write elements of their own: 64*i to 64*i + 63
    for i: t[0] = p[i]; r[i] = t[0]*t[0]        the same if each iteration has a `t` of its own

A subscript is a sum of terms `c*x`. Those that the loop moves less than one step lie within a range, the others are
multiples of some number: iterations touch different elements where the ranges of all of them lie apart within that.
Conditions around a statement make ranges shorter.

    for b: for t in 4*b..4*b+4: if 2*(t % 7)+1 < 13: r[26*(t//7)+2*(t % 7)+1] = …

Numbers t whose quotients and remainders say where an iteration writes are read as digits: two numbers differ in some
digit, and must be apart whatever the lower ones are.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, axes_in, substitute
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
from dlc.kernel.simplify import Linear, bounds, conjuncts, linear, simplify


@dataclass(frozen=True)
class _Access:
    """Elements that one iteration touches: `lanes` from `at` on, in terms of what moves inside of the loop, where
    certain linear forms are not above 0."""

    tensor: str
    at: Expr
    lanes: int
    moving: frozenset[Axis]
    guards: tuple[Linear, ...]


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
    found = _by_tensor(loop, number, written, None)
    shared = {name for name, accesses in found.items() if not _apart(accesses, number)}
    if shared - set(local) and (inner := _numbers(loop, number)):
        digits = _by_tensor(loop, number, shared - set(local), inner)
        shared -= {name for name, accesses in digits.items() if _apart_by_digits(accesses, inner[0], number)}
    if not shared <= set(local) or not all(defined_first(loop.body, name) for name in shared):
        return None
    return tuple(name for name in found if name in shared)


def _by_tensor(
    loop: For, number: Axis, tensors: Collection[str], inner: tuple[Axis, Expr, int] | None
) -> dict[str, list[_Access]]:
    """What one iteration of a loop does with some tensors; with `inner`, in terms of such numbers."""
    found: dict[str, list[_Access]] = {}
    values = {loop.axis: loop.start + number * loop.step}
    for access in _Walk(inner).accesses(loop.body, values, frozenset({number}), ()):
        if access.tensor in tensors:
            found.setdefault(access.tensor, []).append(access)
    return found


def _numbers(loop: For, number: Axis) -> tuple[Axis, Expr, int] | None:
    """(numbers of which each iteration of a loop has some of its own, the first of an iteration, how many these are).

    None where there is no loop inside over such numbers.
    """
    for s in walk_stmts(loop.body):
        match s:
            case For(axis, start, stop, _, 1) if loop.axis in axes_in(start):
                count = most_iterations(start, stop, 1, axis.extent)
                first = simplify(substitute(start, {loop.axis: loop.start + number * loop.step}))
                form = linear(first)
                if form and count and not form.without(number).terms and count <= form.coefficient(number):
                    return Axis("##", axis.extent), first, count
            case _:
                pass
    return None


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


@dataclass
class _Walk:
    """What statements read or write; loops over `inner` (see `_numbers`) have one axis."""

    inner: tuple[Axis, Expr, int] | None
    loops: int = 0

    def accesses(
        self,
        body: tuple[Stmt, ...],
        values: Mapping[Axis, Expr],
        moving: frozenset[Axis],
        guards: tuple[Linear, ...],
    ) -> Iterator[_Access]:
        """Everything that statements touch; `values` are those of axes in terms of the `moving` ones."""
        for s in body:
            for e in subexpressions(exprs_of(s)):
                match e:
                    case Lanes(Load(tensor, (at,))):
                        yield _Access(tensor, substitute(at, values), e.span, moving, guards)
                    case Load(tensor, (at,)):
                        yield _Access(tensor, substitute(at, values), 1, moving, guards)
                    case _:
                        pass
            match s:
                case For(axis, _, _, inner):
                    value, number = self._values(s, values)
                    yield from self.accesses(inner, {**values, axis: value}, moving | {number}, guards)
                case If(condition, then, otherwise):
                    more = tuple(_not_above(condition, values))
                    yield from self.accesses(then, values, moving, (*guards, *more))
                    yield from self.accesses(otherwise, values, moving, guards)
                case Block(inner):
                    yield from self.accesses(inner, values, moving, guards)
                case Store(tensor, at, _, lanes):
                    yield _Access(tensor, substitute(at, values), lanes, moving, guards)
                case _:
                    pass

    def _values(self, s: For, values: Mapping[Axis, Expr]) -> tuple[Expr, Axis]:
        """(the value of a loop's variable, what moves in it)."""
        first, last = (substitute(e, values) for e in (s.start, s.stop))
        count = most_iterations(first, last, s.step, s.axis.extent)
        if self.inner and s.step == 1 and count is not None:
            axis, start, most = self.inner
            if count <= most and simplify(first) == start:
                return axis, axis
        self.loops += 1
        # Of unknown length it reaches anywhere.
        number = Axis(f"#{self.loops}", count if count is not None else 1 << 40)
        return first + number * s.step, number


def _not_above(condition: Expr, values: Mapping[Axis, Expr]) -> Iterator[Linear]:
    """Linear forms that are not above 0 where a condition holds."""
    for c in conjuncts(condition):
        match c:
            case Apply("lt" | "le" | "gt" | "ge" as fn, (x, y)):
                less = x - y if fn in ("lt", "le") else y - x
                if (form := linear(substitute(less + (1 if fn in ("lt", "gt") else 0), values))) is not None:
                    yield form
            case _:
                pass


@dataclass(frozen=True)
class _Reach:
    """Where an access lies: fixed terms + step * number + first + [0, length - 1] + any multiples of `units`; it is
    there for numbers up to `last`."""

    fixed: frozenset[tuple[Expr, int]]
    step: int
    first: int
    length: int
    units: tuple[int, ...]
    last: int


def _apart(accesses: Collection[_Access], number: Axis) -> bool:
    """Whether no two iterations touch the same element.

    With elements at f + s*n + [0, l), up to multiples of u, those of different n are different if l <= s and all of
    them lie within u.
    """
    steps = {form.coefficient(number) for a in accesses if (form := linear(a.at)) and number in axes_in(a.at)}
    if len(steps) == 1:
        # What only the last iteration does counts from there.
        last = (number - (number.extent - 1)) * steps.pop()
        accesses = [replace(a, at=a.at + last) if _is_last(a, number) else a for a in accesses]
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
    ends = [f + r.length for f, r in zip(firsts, reaches, strict=True)]
    whole = max(e + step * r.last for e, r in zip(ends, reaches, strict=True)) - min(firsts)
    return max(ends) - min(firsts) <= step and (not unit or whole <= unit)


def _reach(access: _Access, number: Axis) -> _Reach | None:
    form = linear(access.at)
    moved = form.coefficient(number) if form else 0
    if form is None or not moved:
        return None
    step = abs(moved)
    # Counted from the other end where it falls.
    first = form.constant + min(0, moved * (number.extent - 1))
    length, fixed, units = access.lanes, set[tuple[Expr, int]](), list[int]()
    terms, limited = _limited(form.without(number), access, number, step)
    first, length = first + limited[0], length + limited[1] - limited[0]
    for atom, c in terms:
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
    last = _last(access.guards, number) if moved > 0 else number.extent - 1
    return _Reach(frozenset(fixed), moved, first, length, tuple(units), last)


def _limited(
    form: Linear, access: _Access, number: Axis, step: int
) -> tuple[tuple[tuple[Expr, int], ...], tuple[int, int]]:
    """(terms that no condition limits, least and largest sum of the others)."""
    terms, least, largest = dict(form.terms), 0, 0
    for guard in access.guards:
        parts = dict(guard.terms)
        times = {terms[e] // c if e in terms and terms[e] % c == 0 else 0 for e, c in parts.items()}
        if len(times) != 1 or (m := times.pop()) <= 0 or any(abs(terms[e]) >= step for e in parts):
            continue
        spans = [(bounds(e), c) for e, c in parts.items()]
        known = [sorted((span[0] * c, span[1] * c)) for span, c in spans if span]
        if len(known) < len(spans) or any(number in axes_in(e) or not set(axes_in(e)) <= access.moving for e in parts):
            continue
        low, high = (sum(ends[k] for ends in known) for k in (0, 1))
        least, largest = least + m * low, largest + m * max(low, min(high, -guard.constant))
        terms = {e: c for e, c in terms.items() if e not in parts}
    return tuple(terms.items()), (least, largest)


def _last(guards: Collection[Linear], number: Axis) -> int:
    """The largest number for which linear forms are not above 0."""
    last = number.extent - 1
    for guard in guards:
        c, rest = guard.coefficient(number), bounds(guard.without(number).expr())
        if c > 0 and rest:
            last = min(last, max(0, -rest[0] // c))
    return last


def _is_last(access: _Access, number: Axis) -> bool:
    """Whether only the last iteration has an access, whose place does not tell."""
    first = 0
    for guard in access.guards:
        c, rest = guard.coefficient(number), bounds(guard.without(number).expr())
        if c < 0 and rest:
            first = max(first, -(rest[0] // c))
    return first == number.extent - 1 and number not in axes_in(access.at)


def _apart_by_digits(accesses: Collection[_Access], inner: Axis, number: Axis) -> bool:
    """Whether no two values of `inner` touch the same element, wherever else `number` does not say where that is."""
    forms = [f for a in accesses for f in (linear(a.at), *a.guards)]
    if any(f is None or number in axes_in(f.expr()) for f in forms):
        return False
    cuts = sorted({1, *(c for f in forms if f for e, _ in f.terms for c in _cuts(e, inner))})
    if any(b % a for a, b in pairwise(cuts)):
        return False
    ends = (*cuts[1:], -(-inner.extent // cuts[-1]) * cuts[-1])
    digits = tuple(Axis(f"##{a}", b // a) for a, b in zip(cuts, ends, strict=True))
    values = dict(zip(cuts, digits, strict=True))

    def read(form: Linear) -> Linear | None:
        total: Expr = Const(form.constant)
        for e, c in form.terms:
            total = total + _in_digits(e, inner, values) * c
        return linear(total)

    found: list[_Access] = []
    for a in accesses:
        form, guards = linear(a.at), [read(g) for g in a.guards]
        at = read(form) if form else None
        if at is None or any(inner in axes_in(e) for e, _ in at.terms):
            return False
        found.append(replace(a, at=at.expr(), guards=tuple(g for g in guards if g)))
    return all(
        _apart([replace(a, moving=a.moving - {inner} | set(digits[: k + 1])) for a in found], digit)
        for k, digit in enumerate(digits)
        if digit.extent > 1
    )


def _cuts(e: Expr, axis: Axis) -> tuple[int, ...]:
    """Where quotients and remainders divide an axis into digits."""
    match e:
        case Apply("mod", (Apply("floordiv", (x, Const(int() as c))), Const(int() as d))) if x == axis:
            return c, c * d
        case Apply("floordiv" | "mod", (x, Const(int() as c))) if x == axis:
            return (c,)
        case _:
            return ()


def _in_digits(e: Expr, axis: Axis, digits: Mapping[int, Axis]) -> Expr:
    """A quotient or remainder of an axis as the sum of its digits."""
    low, high = 1, axis.extent * axis.extent + 1
    match e:
        case Apply("mod", (Apply("floordiv", (x, Const(int() as c))), Const(int() as d))) if x == axis:
            low, high = c, c * d
        case Apply("floordiv", (x, Const(int() as c))) if x == axis:
            low = c
        case Apply("mod", (x, Const(int() as c))) if x == axis:
            high = c
        case _ if e != axis:
            return e
        case _:
            pass
    total: Expr = Const(0)
    for cut, digit in digits.items():
        if low <= cut < high:
            total = total + digit * (cut // low)
    return total


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
