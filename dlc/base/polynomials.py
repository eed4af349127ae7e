"""Integer polynomials over the sizes of symbols, as terms in one order: what `dlc.base.extents.Dim` is made of.

    batch·seq·12 + (seq + 1)//2        terms: ((batch, seq), 12), (((seq + 1)//2,), 1)

Atoms of symbols with a unit count units: a height of 64, 72, … 512 is 8·h with h from 8 to 64.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

LONGEST: Final = (1 << 31) - 1
"""No dimension of a model is longer, and exporters write it for "the end"; the bound of a size that has no other."""


@dataclass(frozen=True, order=True)
class Symbol:
    """A size that is bound when a program runs: `unit` times a whole number from `low` to `high`.

    Attributes:
        name: Word characters only.
        low: Smallest count of units.
        high: Largest count of units.
        unit: What every size is a multiple of.
    """

    name: str
    low: int
    high: int
    unit: int = 1

    def __str__(self) -> str:
        """`batch(1,64)`; with its unit `height(1,64,8)`."""
        return f"{self.name}({self.low},{self.high}{f',{self.unit}' if self.unit > 1 else ''})"

    @property
    def limited(self) -> bool:
        """Whether there is a largest size that was meant: memory and strides may depend on it."""
        return self.high < LONGEST

    @property
    def likely(self) -> int:
        """The size to take where any will do: the largest, of which all others are a part; without limit the least."""
        return (self.high if self.limited else self.low) * self.unit

    @property
    def sizes(self) -> str:
        """For people: `1..64`, `8..512 in steps of 8`, `1 or more`."""
        if not self.limited:
            return f"{self.low * self.unit} or more"
        step = f" in steps of {self.unit}" if self.unit > 1 else ""
        return f"{self.low * self.unit}..{self.high * self.unit}{step}"


@dataclass(frozen=True)
class Quotient:
    """`number // divisor`, of terms that have no such quotient as a term."""

    number: Terms
    divisor: int

    def __str__(self) -> str:
        return f"({text(self.number)})//{self.divisor}"


Atom: TypeAlias = "Symbol | Quotient"
Monomial: TypeAlias = "tuple[Atom, ...]"
"""A product of atoms, in the order of their text; () for the number 1."""
Terms: TypeAlias = "tuple[tuple[Monomial, int], ...]"
"""Monomials in the order of their text, the number last, with factors that are not 0."""


def ordered(terms: Mapping[Monomial, int]) -> Terms:
    """The terms in order, without those of which there are none."""
    found = ((m, c) for m, c in terms.items() if c)
    return tuple(sorted(found, key=lambda t: (t[0] == (), tuple(map(str, t[0])))))


def added(a: Terms, b: Terms, sign: int) -> Terms:
    """a + sign·b."""
    total = dict(a)
    for m, c in b:
        total[m] = total.get(m, 0) + sign * c
    return ordered(total)


def multiplied(a: Terms, b: Terms) -> Terms:
    """a·b."""
    total: dict[Monomial, int] = {}
    for m, c in a:
        for n, d in b:
            both = tuple(sorted((*m, *n), key=str))
            total[both] = total.get(both, 0) + c * d
    return ordered(total)


def divided_terms(a: Terms, b: Terms) -> Terms | None:
    """a / b, where b is one term, if that is exact whatever the symbols are; else None."""
    if len(b) != 1:
        return None
    ((by, factor),) = b
    out: dict[Monomial, int] = {}
    for m, c in a:
        rest = list(m)
        for atom in by:
            if atom not in rest:
                return None
            rest.remove(atom)
        if c % factor:
            return None
        out[tuple(rest)] = c // factor
    return ordered(out)


def quotient_terms(a: Terms, b: int) -> Terms:
    """a // b for a positive number: (c·q + r) // c = q + r // c."""
    whole = ordered({m: c // b for m, c in a if c % b == 0 or m == ()})
    rest = ordered({m: c % b if m == () else c for m, c in a if c % b})
    low, high = bounds_of(rest)
    if low // b == high // b:
        return added(whole, ordered({(): low // b}), 1)
    return added(whole, (((Quotient(rest, b),), 1),), 1)


def bounds_of(terms: Terms) -> tuple[int, int]:
    """Smallest and largest value for all sizes of the symbols (not reached where they cannot be together)."""
    low = high = 0
    for m, c in terms:
        a, b = 1, 1
        for atom in m:
            x, y = _atom_bounds(atom)
            corners = (a * x, a * y, b * x, b * y)
            a, b = min(corners), max(corners)
        low, high = low + min(c * a, c * b), high + max(c * a, c * b)
    return low, high


def _atom_bounds(atom: Atom) -> tuple[int, int]:
    if isinstance(atom, Symbol):
        return atom.low, atom.high
    low, high = bounds_of(atom.number)
    return low // atom.divisor, high // atom.divisor


def symbols_of(terms: Terms) -> set[Symbol]:
    """The symbols that occur."""
    found: set[Symbol] = set()
    for m, _ in terms:
        for atom in m:
            found |= {atom} if isinstance(atom, Symbol) else symbols_of(atom.number)
    return found


def value_of(terms: Terms, sizes: Mapping[str, int]) -> int:
    """The number for given sizes of the symbols, by name; raises KeyError: a symbol has none."""
    total = 0
    for m, c in terms:
        for atom in m:
            if isinstance(atom, Symbol):
                c *= sizes[atom.name] // atom.unit
            else:
                c *= value_of(atom.number, sizes) // atom.divisor
        total += c
    return total


def text(terms: Terms, full: bool = True) -> str:
    """The terms as text; without the bounds of symbols, and in sizes instead of units, unless `full`."""
    parts: list[str] = []
    for m, c in terms:
        factors = [_atom_text(a, full) for a in m]
        size, behind = abs(c), ""
        if not full and (unit := math.prod(a.unit for a in m if isinstance(a, Symbol))) > 1:
            common = math.gcd(size, unit)
            size, behind = size // common, f"//{unit // common}" if common < unit else ""
        if size != 1 or not factors:
            factors.insert(0, str(size))
        if not full and len(factors) > 1:  # a product is divided only where that is meant
            factors = [f"({f})" if "//" in f else f for f in factors]
        parts.append(f"{'-' if c < 0 else '+'}{'*'.join(factors)}{behind}")
    return "".join(parts).removeprefix("+")


def _atom_text(atom: Atom, full: bool) -> str:
    if isinstance(atom, Symbol):
        return str(atom) if full else atom.name
    return str(atom) if full else f"({text(atom.number, False)})//{atom.divisor}"
