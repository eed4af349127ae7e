"""Conditions on indices that follow from others: inside `select(i >= 1, B[i-1], …)` nothing asks again if i-1 >= 0.

Comparisons of integers are brought to the form Σ c·i <= bound. One follows from another with the same sum and a bound
that is no larger.
"""

from __future__ import annotations

from collections.abc import Iterator

from dlc.kernel.expr import Apply, Expr
from dlc.kernel.simplify import conjuncts, linear

_NEGATED = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "ne": "eq"}
Sum = frozenset[tuple[Expr, int]]


def facts(condition: Expr, holds: bool) -> Iterator[tuple[Sum, int]]:
    """Upper bounds of sums that a condition states, or the opposite of a single comparison."""
    parts = conjuncts(condition)
    if not holds and len(parts) > 1:
        return
    for part in parts:
        match part:
            case Apply("not", (inner,)):
                yield from facts(inner, not holds)
            case Apply(fn, (x, y)):
                comparison = fn if holds else _NEGATED.get(fn, "")
                if comparison in ("le", "lt", "eq"):
                    yield from _bound(x - y, -1 if comparison == "lt" else 0)
                if comparison in ("ge", "gt", "eq"):
                    yield from _bound(y - x, -1 if comparison == "gt" else 0)
            case _:
                pass


def follows(condition: Expr, known: dict[Sum, int]) -> bool:
    """Whether a comparison with `ge` or `lt` holds wherever these bounds do."""
    return any(s in known and known[s] <= bound for s, bound in facts(condition, True))


def _bound(difference: Expr, limit: int) -> Iterator[tuple[Sum, int]]:
    """difference <= limit."""
    form = linear(difference)
    if form is not None:
        yield frozenset(form.terms), limit - form.constant
