"""From subscripts and guards to a system of affine equations and inequalities over integer unknowns.

    e // c  →  q,   e % c  →  t      with two unknowns for every pair (e, c):  e = c·q + t,  0 <= t < c

Inner divisions are flattened first, so any nesting of `+ - * // %` with literals becomes affine. Equality guards are
equations, other linear comparisons are inequalities; whatever is left stays a guard over the axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlc.kernel.expr import Apply, Axis, Const, Expr, Load, apply, axes_in, walk
from dlc.kernel.simplify import Linear, conjuncts, is_index, linear, simplify_guard
from dlc.kernel.solve.forms import atom, combine, constant, span


@dataclass(frozen=True)
class System:
    """Integer unknowns with what must hold of them.

    Attributes:
        unknowns: Axes to solve for; each ranges over 0 .. extent - 1. Fresh quotients and remainders come first.
        equations: Forms that are zero.
        rows: Forms that are at least zero, the ranges of the unknowns not among them.
        guards: Conditions over the axes that are no such forms.
    """

    unknowns: tuple[Axis, ...]
    equations: tuple[Linear, ...]
    rows: tuple[Linear, ...]
    guards: tuple[Expr, ...]


@dataclass(frozen=True)
class Unsolvable:
    """Why a system is no system of integer forms."""

    reason: str


def recognised(e: Expr) -> bool:
    """Whether flattening makes an expression affine: sums, literal multiples, quotients and remainders by literals."""
    match e:
        case Axis():
            return True
        case Const(value):
            return type(value) is int
        case Apply("add" | "sub" | "neg", args):
            return all(recognised(a) for a in args)
        case Apply("mul", (x, Const() as k) | (Const() as k, x)):
            return recognised(k) and recognised(x)
        case Apply("floordiv" | "mod", (x, Const(int() as c))):
            return c > 0 and recognised(x)
        case _:
            return False


def obstacle(e: Expr) -> str:
    """What keeps an expression from being affine, in words."""
    for x in walk(e):
        match x:
            case Load(param, _):
                return f"reads data ({param})"
            case Apply("mul", (a, b)) if not isinstance(a, Const) and not isinstance(b, Const):
                return "multiplies axes"
            case Apply("floordiv" | "mod", (_, Const(int() as c))) if c > 0:
                pass
            case Apply("floordiv" | "mod", _):
                return "divides by something that is not a positive literal"
            case Apply(fn, _) if fn not in ("add", "sub", "neg", "mul"):
                return f"applies {fn}"
            case _:
                pass
    return "is no index arithmetic"


class Flattener:
    """Collects the unknowns and equations that quotients and remainders add."""

    def __init__(self) -> None:
        self.fresh: list[Axis] = []
        self.equations: list[Linear] = []
        self._pairs: dict[tuple[frozenset[tuple[Expr, int]], int, int], tuple[Linear, Linear]] = {}

    def form(self, e: Expr) -> Linear:
        """A recognised expression as a form over axes and fresh unknowns."""
        plain = linear(e)
        assert plain is not None
        parts = [(1, constant(plain.constant))]
        for a, c in plain.terms:
            match a:
                case Apply("floordiv" | "mod" as fn, (x, Const(value))):
                    q, t = self._pair(self.form(x), int(value))
                    parts.append((c, q if fn == "floordiv" else t))
                case _:
                    parts.append((c, atom(a)))
        return combine(*parts)

    def worth(self, comparison: Apply) -> bool:
        """Whether flattening a comparison gains: it needs at most one new pair, of axes that are in no other one.

        Two divisions of one number by different literals are no box: loops over both would mostly be empty.
        """
        new = self._missing(comparison, {})
        known = {a for form, _, _ in self._pairs for e, _ in form for a in axes_in(e)}
        return len(new) <= 1 and not known & {a for e in new for a in axes_in(e)}

    def _missing(self, e: Expr, found: dict[Expr, None]) -> dict[Expr, None]:
        """Quotients (as what is divided by what) below an expression for which there are no unknowns yet."""
        plain = linear(e) if is_index(e) else None
        below = e.args if plain is None and isinstance(e, Apply) else [a for a, _ in plain.terms] if plain else []
        for a in below:
            match a:
                case Apply("floordiv" | "mod", (x, Const(value))):
                    before = len(found)
                    self._missing(x, found)
                    if len(found) > before or self._key(self.form(x), int(value)) not in self._pairs:
                        found[apply("floordiv", x, value)] = None
                case Apply():
                    self._missing(a, found)
                case _:
                    pass
        return found

    @staticmethod
    def _key(e: Linear, c: int) -> tuple[frozenset[tuple[Expr, int]], int, int]:
        return frozenset(e.terms), e.constant, c

    def _pair(self, e: Linear, c: int) -> tuple[Linear, Linear]:
        key = self._key(e, c)
        if key not in self._pairs:
            limits = span(e)
            assert limits is not None, "every unknown has a range"
            low, high = limits[0] // c, limits[1] // c
            if low == high:
                q = constant(low)
                t = combine((1, e), (-c, q))
            else:
                axis, rest = self._axis("q", high - low + 1), self._axis("t", c)
                q, t = combine((1, atom(axis)), (low, constant(1))), atom(rest)
                self.equations.append(combine((1, e), (-c, q), (-1, t)))
            self._pairs[key] = q, t
        return self._pairs[key]

    def _axis(self, letter: str, extent: int) -> Axis:
        # The mark keeps these names apart from those of axes, which are identifiers.
        self.fresh.append(Axis(f"{letter}'{len(self.fresh)}", extent))
        return self.fresh[-1]


def flatten(axes: Sequence[Axis], targets: Sequence[tuple[Expr, Expr]], where: Expr | None) -> System | Unsolvable:
    """The system `subscript == target` for all targets, where the guard holds.

    Args:
        axes: The unknowns; all extents are positive.
        targets: Subscripts over the axes, and what each equals: an index expression over other axes.
        where: A guard over the axes.
    """
    for k, (subscript, _) in enumerate(targets):
        if not recognised(subscript):
            return Unsolvable(f"subscript {k} {obstacle(subscript)}")
    flattener = Flattener()
    equations = [combine((1, flattener.form(e)), (-1, flattener.form(u))) for e, u in targets]
    rows: list[Linear] = []
    guards: list[Expr] = []
    comparisons: list[Apply] = []
    for g in conjuncts(simplify_guard(where)):
        match g:
            case Apply("eq", (x, y)) if recognised(x) and recognised(y):
                equations.append(combine((1, flattener.form(x)), (-1, flattener.form(y))))
            case Apply("lt" | "le" | "gt" | "ge", (x, y)) if recognised(x) and recognised(y):
                comparisons.append(g)
            case _:
                guards.append(g)
    for g in comparisons:
        if flattener.worth(g):
            rows.append(row_of(flattener, g))
        else:
            guards.append(g)
    return System((*flattener.fresh, *axes), (*equations, *flattener.equations), tuple(rows), tuple(guards))


def row_of(flattener: Flattener, comparison: Apply) -> Linear:
    """A comparison as a form that is at least zero."""
    x, y = (flattener.form(a) for a in comparison.args)
    sign = 1 if comparison.fn in ("gt", "ge") else -1
    strict = int(comparison.fn in ("gt", "lt"))
    return combine((sign, x), (-sign, y), (-strict, constant(1)))
