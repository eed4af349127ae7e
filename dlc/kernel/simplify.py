"""Simplification of integer index expressions, guards and nests by linear normal form and interval reasoning.

Index expressions are exact integers (they address memory that exists), so all algebra of the integers applies. Data
expressions are left as they are: floating-point and wrapping integer arithmetic have fewer laws.

The rules, with x = c·q + r as polynomials over the axes:

    (c·q + r) // c  →  q                  if 0 <= r < c everywhere
    (c·q + r) %  c  →  r                  if 0 <= r < c everywhere
    (c·q + r) // c  →  q + r // c         otherwise
    (c·q + r) %  c  →  r % c              otherwise
    x // c // d     →  x // (c·d)
    x - c·(x // c)  →  x % c
    x // d - c·(x // (c·d))  →  x // d % c
    c·(x // c) + x % c       →  x
    a < b, a == b … →  true or false      if the intervals decide it
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from dlc.base.budget import tick
from dlc.kernel.expr import TRUE, Apply, Axis, Const, Expr, Load, apply, both, children
from dlc.kernel.nest import Nest

Interval = tuple[int, int]
INDEX_FUNCTIONS = frozenset({"add", "sub", "mul", "floordiv", "mod", "neg", "min", "max"})
MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}
"""Comparison → the one that says the same with its operands exchanged."""
_COMPARISONS = frozenset(MIRRORED)


def is_index(e: Expr) -> bool:
    """Whether an expression is pure index arithmetic: axes, integer literals, and integer functions of them."""
    if isinstance(e, Apply):
        return not e.has_load and e.fn in INDEX_FUNCTIONS and all(map(is_index, e.args))
    return isinstance(e, Axis) or (isinstance(e, Const) and type(e.value) is int)


def bounds(e: Expr) -> Interval | None:
    """Smallest and largest value of an index expression over all axes, or None when it is not known."""
    match e:
        case Const(value) if type(value) is int:
            return value, value
        case Axis(_, extent):
            return (0, extent - 1) if extent > 0 else None
        case Apply(fn, (x,)) if fn == "neg":
            b = bounds(x)
            return None if b is None else (-b[1], -b[0])
        case Apply(fn, (x, y)) if fn in INDEX_FUNCTIONS:
            a, b = bounds(x), bounds(y)
            return None if a is None or b is None else combined(fn, a, b)
        case _:
            return None


def combined(fn: str, a: Interval, b: Interval) -> Interval | None:
    """The values of an index function of two arguments in these intervals; None when they are not known."""
    match fn:
        case "add":
            return a[0] + b[0], a[1] + b[1]
        case "sub":
            return a[0] - b[1], a[1] - b[0]
        case "mul":
            corners = [x * y for x in a for y in b]
            return min(corners), max(corners)
        case "min":
            return min(a[0], b[0]), min(a[1], b[1])
        case "max":
            return max(a[0], b[0]), max(a[1], b[1])
        case "floordiv" if b[0] == b[1] and b[0] > 0:
            return a[0] // b[0], a[1] // b[0]
        case "mod" if b[0] == b[1] and b[0] > 0:
            if a[0] // b[0] == a[1] // b[0]:
                return a[0] % b[0], a[1] % b[0]
            return 0, b[0] - 1
        case _:
            return None


@dataclass(frozen=True)
class Linear:
    """constant + Σ coefficient · atom; atoms are axes or non-linear index expressions, no coefficient is zero."""

    terms: tuple[tuple[Expr, int], ...]
    constant: int

    def coefficient(self, atom: Expr) -> int:
        """The coefficient of an atom, 0 when it does not occur."""
        return dict(self.terms).get(atom, 0)

    def without(self, atom: Expr) -> Linear:
        """The form with one atom left out."""
        return Linear(tuple(t for t in self.terms if t[0] != atom), self.constant)

    def expr(self) -> Expr:
        """The form as an expression: terms in their order, constant last."""
        total: Expr = Const(0)
        for atom, c in self.terms:
            total = total - atom * -c if c < 0 and total != Const(0) else total + atom * c
        return total + self.constant


@lru_cache(maxsize=1 << 14)
def linear(e: Expr) -> Linear | None:
    """An index expression as a linear form over axes and non-linear atoms; None when it is not index arithmetic."""
    if not is_index(e):
        return None
    terms: dict[Expr, int] = {}
    constant = _collect(e, 1, terms)
    return _rejoin(_sum(terms.items(), constant))


def _rejoin(form: Linear) -> Linear:
    """A form with quotients and remainders of one number put together; each step leaves fewer atoms of a form."""
    for e, k in form.terms:
        match e:
            case Apply("floordiv" | "mod" as fn, (x, Const(int() as c))) if c > 0:
                if joined := (_remainder if fn == "floordiv" else _whole)(form, e, k, x, c):
                    return _rejoin(joined)
            case _:
                pass
    return form


def _remainder(form: Linear, quotient: Expr, k: int, x: Expr, c: int) -> Linear | None:
    """m·x - m·c·(x // c) → m·(x % c), and the same of x // d; None when the form has no such part."""
    for e, m in form.terms:
        match e:
            case Apply("floordiv", (y, Const(int() as d))) if y == x and 0 < d < c and c % d == 0 and k * d == -m * c:
                rest = form.without(quotient).without(e)
                return _sum((*rest.terms, (apply("mod", e, c // d), m)), rest.constant)
            case _:
                pass
    inner = linear(x)
    if k % c or inner is None or not inner.terms:
        return None
    m = -k // c
    if any(form.coefficient(e) != m * f for e, f in inner.terms):
        return None
    rest = (t for t in form.terms if t[0] != quotient and not inner.coefficient(t[0]))
    return _sum((*rest, (apply("mod", x, c), m)), form.constant - m * inner.constant)


def _whole(form: Linear, remainder: Expr, m: int, x: Expr, c: int) -> Linear | None:
    """m·c·(x // c) + m·(x % c) → m·x; None when the form has no such part."""
    quotient, inner = _divide("floordiv", x, c), linear(x)
    if not isinstance(quotient, Apply) or form.coefficient(quotient) != m * c or inner is None:
        return None
    rest = form.without(remainder).without(quotient)
    return _sum((*rest.terms, *((e, m * f) for e, f in inner.terms)), rest.constant + m * inner.constant)


def _sum(terms: Iterable[tuple[Expr, int]], constant: int) -> Linear:
    total: dict[Expr, int] = {}
    for e, c in terms:
        total[e] = total.get(e, 0) + c
    return Linear(tuple((e, c) for e, c in total.items() if c), constant)


def _collect(e: Expr, factor: int, into: dict[Expr, int]) -> int:
    match e:
        case Const(value):
            return factor * int(value)
        case Apply("add", (x, y)):
            return _collect(x, factor, into) + _collect(y, factor, into)
        case Apply("sub", (x, y)):
            return _collect(x, factor, into) + _collect(y, -factor, into)
        case Apply("neg", (x,)):
            return _collect(x, -factor, into)
        case Apply("mul", (x, Const(k))) | Apply("mul", (Const(k), x)):
            return _collect(x, factor * int(k), into)
        case Apply("floordiv" | "mod" as fn, (x, Const(k))) if int(k) > 0:
            atom = _divide(fn, x, int(k))
        case Apply(fn, args):
            atom = apply(fn, *(simplify(a) for a in args))
        case _:
            atom = e
    if isinstance(atom, Apply) and atom.fn in ("add", "sub", "mul", "neg"):
        nonlinear = atom.fn == "mul" and not any(isinstance(a, Const) for a in atom.args)
        if not nonlinear:
            return _collect(atom, factor, into)
    if isinstance(atom, Const):
        return factor * int(atom.value)
    into[atom] = into.get(atom, 0) + factor
    return 0


def _divide(fn: str, x: Expr, c: int) -> Expr:
    """x // c or x % c by the rules above."""
    match fn, x:
        case "floordiv", Apply("floordiv", (inner, Const(int() as d))) if d > 0:
            return _divide("floordiv", inner, c * d)
        case _:
            form = linear(x)
    if form is None:
        return apply(fn, simplify(x), c)
    q = Linear(tuple((a, k // c) for a, k in form.terms if k % c == 0), form.constant // c)
    r = Linear(tuple((a, k) for a, k in form.terms if k % c), form.constant % c)
    rest = r.expr()
    span = bounds(rest)
    if span is not None and span[0] >= 0 and span[1] < c:
        return q.expr() if fn == "floordiv" else rest
    if fn == "mod":
        return apply("mod", rest, c)
    return q.expr() + apply("floordiv", rest, c)


@lru_cache(maxsize=1 << 14)
def simplify(e: Expr) -> Expr:
    """An equal expression, simpler by the rules of this module."""
    if (form := linear(e)) is not None:
        out = form.expr()
        span = bounds(out)
        return Const(span[0]) if span is not None and span[0] == span[1] else out
    match e:
        case Load(param, index):
            return Load(param, tuple(simplify(i) for i in index))
        case Apply(fn, (x, y)) if fn in _COMPARISONS and is_index(x) and is_index(y):
            return _compare(fn, x, y)
        case Apply(fn, args):
            return _logic(fn, tuple(simplify(a) for a in args))
        case _:
            return e


def _logic(fn: str, args: tuple[Expr, ...]) -> Expr:
    match fn, args:
        case "and", (a, b) if Const(False) in (a, b):
            return Const(False)
        case "and", (a, b) if a == b:
            return a
        case "not", (Const(bool() as value),):
            return Const(not value)
        case _:
            return apply(fn, *args)


def _compare(fn: str, x: Expr, y: Expr) -> Expr:
    """Decide a comparison by the interval of x - y, or bring it to a normal form."""
    difference = linear(x - y)
    span = None if difference is None else bounds(difference.expr())
    if span is None or difference is None:
        return apply(fn, simplify(x), simplify(y))
    low, high = span
    known: Mapping[str, tuple[bool, bool]] = {  # comparison: (certainly true, certainly false)
        "lt": (high < 0, low >= 0),
        "le": (high <= 0, low > 0),
        "gt": (low > 0, high <= 0),
        "ge": (low >= 0, high < 0),
        "eq": (low == high == 0, low > 0 or high < 0),
        "ne": (low > 0 or high < 0, low == high == 0),
    }
    yes, no = known[fn]
    if yes or no:
        return Const(yes)
    if all(c < 0 for _, c in difference.terms):  # -j == 0 is j == 0, -i >= -9 is i <= 9
        flipped = MIRRORED[fn]
        return apply(flipped, Linear(tuple((a, -c) for a, c in difference.terms), 0).expr(), difference.constant)
    return apply(fn, Linear(difference.terms, 0).expr(), -difference.constant)


def conjuncts(guard: Expr | None) -> tuple[Expr, ...]:
    """The parts of a conjunction, left to right."""
    if guard is None:
        return ()
    if isinstance(guard, Apply) and guard.fn == "and":
        return tuple(c for a in guard.args for c in conjuncts(a))
    return (guard,)


def simplify_guard(guard: Expr | None) -> Expr | None:
    """A simpler equal guard; None when it always holds."""
    out: Expr | None = None
    for part in dict.fromkeys(c for g in conjuncts(guard) for c in conjuncts(simplify(g))):
        if part == Const(False):
            return part
        if part != TRUE:
            out = both(out, part)
    return out


def simplify_nest(nest: Nest) -> Nest:
    """A simpler equal nest: axes of extent 1 removed, indices and guards simplified."""
    tick()
    if unit := {a: Const(0) for a in nest.axes if a.extent == 1}:
        nest = nest.substitute(unit, tuple(a for a in nest.axes if a.extent != 1))
    return replace(
        nest,
        index=tuple(simplify(i) for i in nest.index),
        body=simplify(nest.body),
        where=simplify_guard(nest.where),
    )


def depth(e: Expr) -> int:
    """Height of an expression tree, iteratively."""
    level, height = [e], 0
    while level:
        height += 1
        level = [c for x in level for c in children(x)]
    return height
