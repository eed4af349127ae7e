"""The largest value of a subscript inside loops that end at sizes, as a number for all sizes.

    for i<n: for k<12: k·n + i - 12·n          at most -1

Variables of loops are replaced by where their loops end, innermost first; what is left has no sizes, or is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dlc.kernel.expr import Apply, Axis, Const, Expr, axes_in, substitute
from dlc.kernel.loops.program import For
from dlc.kernel.simplify import bounds, linear

MOST_CASES: Final = 1 << 12
"""Steps towards a bound before it counts as unknown."""

Loops = Mapping[str, tuple[int, For]]
"""Variable → (depth, its loop), outer loops first."""


@dataclass
class Largest:
    """The search for the largest value of an expression."""

    loops: Loops
    steps: int = 0

    def of(self, e: Expr) -> int | None:
        """A number that it is never above; None: unknown."""
        self.steps += 1
        form = linear(e)
        if form is None or self.steps > MOST_CASES:
            return None
        atom = max((a for a, _ in form.terms), key=self._rank, default=None)
        if atom is None:
            return form.constant
        factor = form.coefficient(atom)
        rest = form.without(atom).expr()
        match atom:
            case Apply("min" | "max" as fn, (x, y)):
                found = [self.of(rest + one * factor) for one in (x, y)]
                known = [k for k in found if k is not None]
                if (fn == "max") == (factor > 0):  # either of the two may be what it is
                    return max(known) if len(known) == 2 else None
                return min(known, default=None)
            case Apply("floordiv", (x, Const(int() as k))) if k > 0:
                # k·(x // k) lies between x - (k - 1) and x.
                largest = self.of(rest * k + (x if factor > 0 else x - (k - 1)) * factor)
                return None if largest is None else largest // k
            case _ if self._depth(atom):
                end = self._end(atom, factor > 0)
                return None if end is None else self.of(rest + end * factor)
            case _:
                span = bounds(form.expr())
                return None if span is None else span[1]

    def _end(self, atom: Expr, most: bool) -> Expr | None:
        """Something with fewer variables that an atom is never above, or never below; None: unknown."""
        match atom:
            case Axis(name) if name in self.loops:
                return self._last(name) if most else self.loops[name][1].start
            case Apply("mod", (_, y)) if _at_least(y, 1):
                return y - 1 if most else Const(0)
            case Apply("floordiv", (x, y)) if _at_least(y, 1) and most:
                times = self._times(x, y)
                return None if times is None else Const(times)
            case Apply("mul", (x, y)):
                return self._product(x, y, most) if self._depth(x) >= self._depth(y) else self._product(y, x, most)
            case _:
                span = bounds(atom)
                return None if span is None else Const(span[1] if most else span[0])

    def _product(self, x: Expr, y: Expr, most: bool) -> Expr | None:
        """`_end` of x·y, where x belongs to the inner loop."""
        if isinstance(x, Axis):
            end = self._end(x, most)
            return end * y if end is not None and _at_least(y, 0) else None
        sum = linear(x)
        if sum is None or (len(sum.terms) == 1 and sum.constant == 0):
            return None
        products = y * sum.constant
        for part, times in sum.terms:
            products = products + part * y * times
        return products

    def _last(self, name: str) -> Expr:
        """The last value of a loop's variable, or what is never before it."""
        _, around = self.loops[name]
        match around.start, around.stop:
            case Const(int() as start), Const(int() as stop):
                return Const(start + max(stop - 1 - start, 0) // around.step * around.step)
            case _:
                return around.stop - 1

    def _times(self, x: Expr, y: Expr) -> int | None:
        """A number that x // y is never above, where x ends at a multiple of y; y is at least 1."""
        by = linear(y)
        if by is None or not by.terms:
            return None
        end = x
        for name in list(self.loops)[::-1]:  # to see how often y may be in it, which is shown after that
            end = substitute(end, {a: self._last(name) for a in axes_in(end) if a.name == name})
        form = linear(end)
        if form is None:
            return None
        atom, step = by.terms[0]
        times = form.coefficient(atom) // step
        below = self.of(x - y * times)
        return times - 1 if below is not None and below < 0 else None

    def _rank(self, atom: Expr) -> tuple[int, bool, str]:
        """What is replaced first: what belongs to the innermost loop, functions before variables."""
        simple = isinstance(atom, Axis) or (isinstance(atom, Apply) and atom.fn == "mul")
        return self._depth(atom), not simple, str(atom)

    def _depth(self, atom: Expr) -> int:
        return max((self.loops[a.name][0] for a in axes_in(atom) if a.name in self.loops), default=0)


def _at_least(e: Expr, low: int) -> bool:
    span = bounds(e)
    return span is not None and span[0] >= low
