"""Arithmetic on linear forms: `Linear` of dlc.kernel.simplify as elements of a module over the integers."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from dlc.kernel.expr import Apply, Axis, Const, Expr, apply, axes_in
from dlc.kernel.simplify import Interval, Linear, bounds, linear


def constant(value: int) -> Linear:
    """The form without atoms."""
    return Linear((), value)


def atom(e: Expr, coefficient: int = 1) -> Linear:
    """coefficient · e."""
    return Linear(((e, coefficient),), 0)


def combine(*parts: tuple[int, Linear]) -> Linear:
    """Σ factor · form."""
    terms: dict[Expr, int] = {}
    total = 0
    for factor, form in parts:
        total += factor * form.constant
        for e, c in form.terms:
            terms[e] = terms.get(e, 0) + factor * c
    return Linear(tuple((e, c) for e, c in terms.items() if c), total)


def put(form: Linear, values: Mapping[Expr, Linear]) -> Linear:
    """The form with atoms replaced by forms, at once; the same object when none occurs."""
    if not any(e in values for e, _ in form.terms):
        return form
    rest = Linear(tuple(t for t in form.terms if t[0] not in values), form.constant)
    out = combine((1, rest), *((c, values[e]) for e, c in form.terms if e in values))
    return normal(out)


def normal(form: Linear) -> Linear:
    """The form with quotients and remainders of the same number put together again."""
    if all(isinstance(e, Axis) for e, _ in form.terms):
        return form
    again = linear(form.expr())
    assert again is not None
    return again


def positive_first(form: Linear) -> Linear:
    """The form as it is printed best: `u - w` rather than `w*-1 + u`."""
    return Linear(tuple(sorted(form.terms, key=lambda t: t[1] < 0)), form.constant)


def condition(row: Linear) -> Expr:
    """row >= 0, as a comparison of what is positive with a constant where nothing else is there."""
    form = positive_first(row)
    if form.terms and all(c < 0 for _, c in form.terms):
        return apply("le", combine((-1, Linear(form.terms, 0))).expr(), form.constant)
    return apply("ge", Linear(form.terms, 0).expr(), -form.constant)


def split(form: Linear, unknowns: Collection[Expr]) -> tuple[Linear, Linear]:
    """The part over the unknowns, without constant, and the rest."""
    mine = tuple(t for t in form.terms if t[0] in unknowns)
    rest = tuple(t for t in form.terms if t[0] not in unknowns)
    return Linear(mine, 0), Linear(rest, form.constant)


def content(form: Linear) -> int:
    """The greatest common divisor of the coefficients; 0 when there are none."""
    return math.gcd(*(c for _, c in form.terms))


def sign_of(form: Linear, divisor: int) -> int:
    """The sign that leaves fewer negative terms in form // divisor, whose multiples of the divisor move out."""
    odd = [c for _, c in form.terms if c % divisor]
    return 1 if 2 * sum(c > 0 for c in odd) >= len(odd) else -1


def divided(form: Linear, divisor: int) -> Linear:
    """floor(form / divisor), as a form whose inexact part is a quotient atom.

    Of the two equal ways, f // d and -((d - 1 - f) // d), the one whose quotient has fewer negative terms.
    """
    if all(c % divisor == 0 for _, c in form.terms):
        return Linear(tuple((e, c // divisor) for e, c in form.terms), form.constant // divisor)
    sign = sign_of(form, divisor)
    numerator = form if sign == 1 else combine((-1, form), (divisor - 1, constant(1)))
    out = linear(positive_first(numerator).expr() // divisor)
    assert out is not None
    return combine((sign, out))


def span(form: Linear) -> Interval | None:
    """Smallest and largest value over the ranges of the atoms, each on its own; None when one is not known."""
    low = high = form.constant
    for e, c in form.terms:
        b = bounds(e)
        if b is None:
            return None
        low += c * b[0] if c > 0 else c * b[1]
        high += c * b[1] if c > 0 else c * b[0]
    return low, high


def touches(form: Linear, unknowns: Collection[Expr]) -> bool:
    """Whether an atom of the form is an unknown or depends on one."""
    return any(a in unknowns for e, _ in form.terms for a in axes_in(e))


def cleared(row: Linear, exact: Collection[Expr]) -> Linear:
    """An inequality without the quotients that are known to be exact: x // s + f >= 0 is x + s·f >= 0."""
    for e, c in row.terms:
        match e:
            case Apply("floordiv", (x, Const(int() as s))) if e in exact:
                numerator = linear(x)
                assert numerator is not None
                return cleared(combine((s, row.without(e)), (c, numerator)), exact)
            case _:
                pass
    return row
