"""Extents as C text: sizes of a call are numbers of 64 bits."""

from __future__ import annotations

from collections.abc import Mapping

from dlc.base.extents import Dim, Extent, bounds, of_terms
from dlc.base.polynomials import Atom, Least, Quotient, Symbol


def c_extent(e: Extent, names: Mapping[Symbol, str], smaller: str) -> str:
    """An extent as an expression of `int64_t`; what is divided is never negative. `smaller`: a function of two."""
    if not isinstance(e, Dim):
        return str(e)
    parts: list[str] = []
    for monomial, factor in e.terms:
        atoms = [_atom(a, names, smaller) for a in monomial]
        parts.append(" * ".join([f"(int64_t){factor}", *atoms]))
    return " + ".join(parts)


def _atom(atom: Atom, names: Mapping[Symbol, str], smaller: str) -> str:
    match atom:
        case Symbol():
            return names[atom] if atom.unit == 1 else f"({names[atom]} / {atom.unit})"
        case Least(a, b):
            return f"{smaller}({', '.join(c_extent(of_terms(t), names, smaller) for t in (a, b))})"
        case Quotient(terms, divisor):
            number = of_terms(terms)
            # Rounded down as integers of mathematics are, by a multiple of the divisor that makes it positive.
            more = max(0, -(bounds(number)[0] // divisor))
            text = f"(({c_extent(number + more * divisor, names, smaller)}) / {divisor}"
            return f"{text} - {more})" if more else f"{text})"
