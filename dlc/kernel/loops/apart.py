"""Whether the iterations of a loop touch different elements.

A subscript is a sum of terms `c*x`. Those that the loop moves less than one step lie within a range, the others are
multiples of some number: iterations touch different elements where the ranges of all of them lie apart within that.
Conditions around a statement make ranges shorter.

    for b: for t in 4*b..4*b+4: if 2*(t % 7)+1 < 13: r[26*(t//7)+2*(t % 7)+1] = …

Numbers t whose quotients and remainders say where an iteration writes are read as digits: two numbers differ in some
digit, and must be apart whatever the lower ones are.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from dlc.kernel.expr import Apply, Axis, Const, Expr, axes_in
from dlc.kernel.loops.accesses import Access
from dlc.kernel.simplify import Linear, bounds, linear


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


def apart(accesses: Collection[Access], number: Axis) -> bool:
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


def _reach(access: Access, number: Axis) -> _Reach | None:
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
    form: Linear, access: Access, number: Axis, step: int
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


def _is_last(access: Access, number: Axis) -> bool:
    """Whether only the last iteration has an access, whose place does not tell."""
    first = 0
    for guard in access.guards:
        c, rest = guard.coefficient(number), bounds(guard.without(number).expr())
        if c < 0 and rest:
            first = max(first, -(rest[0] // c))
    return first == number.extent - 1 and number not in axes_in(access.at)


def apart_by_digits(accesses: Collection[Access], inner: Axis, number: Axis) -> bool:
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

    found: list[Access] = []
    for a in accesses:
        form, guards = linear(a.at), [read(g) for g in a.guards]
        at = read(form) if form else None
        if at is None or any(inner in axes_in(e) for e, _ in at.terms):
            return False
        found.append(replace(a, at=at.expr(), guards=tuple(g for g in guards if g)))
    return all(
        apart([replace(a, moving=a.moving - {inner} | set(digits[: k + 1])) for a in found], digit)
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
