"""Sums of products of powers: expressions over tensors as polynomials, in which what cancels is not there.

    (a - b)·c/d   is   a·c·d⁻¹ - b·c·d⁻¹

An atom is what is no sum, product or quotient: a load, or a function of something.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from typing import Final, TypeAlias

from dlc.kernel.expr import Apply, Const, Expr

Monomial: TypeAlias = frozenset[tuple[Expr, int]]
"""Atoms with their exponents, none of them 0."""

MOST_TERMS: Final = 24
"""Of a polynomial; an expression with more is an atom."""
ONE: Final[Monomial] = frozenset()


@dataclass(frozen=True)
class Laurent:
    """Σ coefficient · monomial; without terms it is 0."""

    terms: Mapping[Monomial, Fraction]

    @staticmethod
    def atom(e: Expr) -> Laurent:
        """A polynomial of one atom."""
        return Laurent({frozenset({(e, 1)}): Fraction(1)})

    @staticmethod
    def number(value: Fraction) -> Laurent:
        """A constant."""
        return Laurent({ONE: value} if value else {})

    def plus(self, other: Laurent, times: int = 1) -> Laurent:
        """The sum with another one, or with a multiple of it."""
        total = dict(self.terms)
        for m, c in other.terms.items():
            total[m] = total.get(m, Fraction(0)) + times * c
        return Laurent({m: c for m, c in total.items() if c})

    def times(self, other: Laurent) -> Laurent:
        """The product with another one."""
        total = Laurent({})
        for m, c in self.terms.items():
            total = total.plus(Laurent({multiplied(m, n): c * d for n, d in other.terms.items()}))
        return total

    def inverse(self) -> Laurent | None:
        """What it is multiplied with to give 1; None where that is no such polynomial."""
        if len(self.terms) != 1:
            return None
        ((m, c),) = self.terms.items()
        return Laurent({frozenset((a, -k) for a, k in m): 1 / c})


def multiplied(a: Monomial, b: Monomial) -> Monomial:
    """The product of two monomials."""
    powers = dict(a)
    for atom, k in b:
        powers[atom] = powers.get(atom, 0) + k
    return frozenset((atom, k) for atom, k in powers.items() if k)


def laurent(e: Expr, known: Callable[[Expr], Laurent]) -> Laurent | None:
    """An expression as a polynomial; None where it has too many terms.

    Args:
        e: Of floats.
        known: What an atom is.
    """
    match e:
        case Const(value) if type(value) is float and isfinite(value):
            return Laurent.number(Fraction(value))
        case Apply("neg", (x,)):
            return _bounded(laurent(x, known), lambda a: Laurent({}).plus(a, -1))
        case Apply("add" | "sub" | "mul" | "div" as fn, (x, y)):
            a, b = laurent(x, known), laurent(y, known)
            if a is None or b is None:
                return None
            if fn in ("add", "sub"):
                return _bounded(a, lambda a: a.plus(b, 1 if fn == "add" else -1))
            if fn == "div":
                b = b.inverse() or known(apply_inverse(y))
            if len(a.terms) * len(b.terms) > MOST_TERMS:
                return None
            return a.times(b)
        case _:
            return known(e)


def apply_inverse(e: Expr) -> Expr:
    """One over an expression that is a sum, as an atom."""
    return Apply("div", (Const(1.0), e))


def _bounded(a: Laurent | None, change: Callable[[Laurent], Laurent]) -> Laurent | None:
    found = None if a is None else change(a)
    return None if found is None or len(found.terms) > MOST_TERMS else found
