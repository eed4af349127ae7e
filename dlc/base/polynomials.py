"""Integer polynomials over the sizes of symbols, as terms in one order: what `dlc.base.extents.Dim` is made of.

    batch·seq·12 + (seq + 1)//2        terms: ((batch, seq), 12), (((seq + 1)//2,), 1)
    min(found, 100)                    terms: ((min(found, 100),), 1)

Atoms of symbols with a unit count units: a height of 64, 72, … 512 is 8·h with h from 8 to 64.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
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
    def least(self) -> int:
        """The smallest size."""
        return self.low * self.unit

    @property
    def most(self) -> int:
        """The largest size."""
        return self.high * self.unit

    @property
    def limited(self) -> bool:
        """Whether there is a largest size that was meant: memory and strides may depend on it."""
        return self.high < LONGEST

    @property
    def likely(self) -> int:
        """The size to take where any will do: the largest, of which all others are a part; without limit the least."""
        return self.most if self.limited else self.least

    @property
    def terms(self) -> Terms:
        """Its size as a polynomial."""
        return (((self,), self.unit),)

    @property
    def sizes(self) -> str:
        """For people: `1..64`, `8..512 in steps of 8`, `1 or more`."""
        if not self.limited:
            return f"{self.least} or more"
        step = f" in steps of {self.unit}" if self.unit > 1 else ""
        return f"{self.least}..{self.most}{step}"


@dataclass(frozen=True)
class Quotient:
    """`number // divisor`, of terms that have no such quotient as a term."""

    number: Terms
    divisor: int

    def __str__(self) -> str:
        return f"({text(self.number)})//{self.divisor}"


@dataclass(frozen=True)
class Least:
    """The smaller one of two numbers, of which either may be, in the order of their text; see `least_terms`."""

    a: Terms
    b: Terms

    def __str__(self) -> str:
        return f"min({text(self.a)},{text(self.b)})"


Atom: TypeAlias = "Symbol | Quotient | Least"
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
    """a / b, if that is exact whatever the symbols are; else None: division of polynomials, term by term."""
    if not b:
        return None
    by, factor = max(b, key=_leading)
    found: Terms = ()
    for _ in range(_MOST_STEPS):
        if not a:
            return found
        m, c = max(a, key=_leading)
        rest: list[Atom] = list(m)
        for atom in by:
            if atom not in rest:
                return None
            rest.remove(atom)
        if c % factor:
            return None
        term: Terms = ((tuple(rest), c // factor),)
        found, a = added(found, term, 1), added(a, multiplied(term, b), -1)
    return None


_MOST_STEPS: Final = 64
"""Terms that a quotient may have."""


def _leading(term: tuple[Monomial, int]) -> tuple[int, tuple[str, ...]]:
    """By which the first term of a polynomial is found: its degree, then its atoms."""
    return len(term[0]), tuple(map(str, term[0]))


def quotient_terms(a: Terms, b: int) -> Terms:
    """a // b for a positive number: (c·q + r) // c = q + r // c, and of a quotient one quotient."""
    whole = ordered({m: c // b for m, c in a if c % b == 0 or m == ()})
    rest = ordered({m: c % b if m == () else c for m, c in a if c % b})
    low, high = bounds_of(rest)
    if low // b == high // b:
        return added(whole, ordered({(): low // b}), 1)
    inner = [(m[0], c) for m, c in rest if len(m) == 1 and isinstance(m[0], Quotient)]
    if len(inner) == 1 and inner[0][1] == 1:  # (n // d + r) // b = (n + d·r) // (d·b)
        q = inner[0][0]
        assert isinstance(q, Quotient)
        r = added(rest, (((q,), 1),), -1)
        return added(
            whole, quotient_terms(added(q.number, multiplied(r, ordered({(): q.divisor})), 1), q.divisor * b), 1
        )
    return added(whole, (((Quotient(rest, b),), 1),), 1)


def least_terms(a: Terms, b: Terms) -> Terms:
    """min(a, b), where either may be the smaller one: c·min(x, y) + z, with as much as possible outside."""
    x, y = dict(a), dict(b)
    common = {m: c for m, c in a if y.get(m) == c}
    common[()] = min(x.get((), 0), y.get((), 0))
    outside = ordered(common)
    rest = [added(t, outside, -1) for t in (a, b)]
    factor = math.gcd(*(c for t in rest for _, c in t))
    first, second = sorted((tuple((m, c // factor) for m, c in t) for t in rest), key=text)
    return added(outside, (((Least(first, second),), factor),), 1)


@lru_cache(maxsize=4096)
def bounds_of(terms: Terms) -> tuple[int, int]:
    """Smallest and largest value for all sizes of the symbols (not reached where they cannot be together).

    They are exact where every term is one of a single symbol with few sizes.
    """
    low = high = 0
    for part in _independent(terms):
        a, b = _tried(part) or _bounds(part, _MOST_CASES)
        low, high = low + a, high + b
    return low, high


_MOST_CASES: Final = 32
_MOST_TRIED: Final = 1024
"""Sizes of one symbol that are tried one by one."""


def _independent(terms: Terms) -> list[Terms]:
    """The terms in parts that have no symbol in common."""
    parts: list[tuple[set[Symbol], Terms]] = []
    for term in terms:
        own = symbols_of((term,))
        near = [part for part in parts if part[0] & own]
        parts = [part for part in parts if not part[0] & own]
        merged = sorted((t for part in near for t in part[1]), key=terms.index)
        parts.append((own.union(*(part[0] for part in near)), (*merged, term)))
    return [part for _, part in parts]


def _tried(terms: Terms) -> tuple[int, int] | None:
    """The bounds of a number of one symbol by its values at all sizes; None: intervals do, or there are too many."""
    symbols = symbols_of(terms)
    if len(symbols) != 1 or all(len(m) == 1 and isinstance(m[0], Symbol) for m, _ in terms):
        return None
    (one,) = symbols
    if one.high - one.low >= _MOST_TRIED:
        return None
    values = [value_of(terms, {one.name: k * one.unit}) for k in range(one.low, one.high + 1)]
    return min(values), max(values)


def _bounds(terms: Terms, cases: int) -> tuple[int, int]:
    """The bounds of terms that have symbols in common, by intervals.

    Args:
        terms: The number.
        cases: Choices between the operands of a `Least` that are looked at one by one, to bound the work.
    """
    low, high = _interval(terms)
    leasts = {a: None for m, _ in terms for a in m if isinstance(a, Least)}
    share = cases // (2 * len(leasts)) if leasts else 0
    for atom in leasts if share else ():
        # Either operand stands in the place of the smaller one, which is at most each of them.
        found = [_bounds(_replaced(terms, atom, t), share - 1) for t in (atom.a, atom.b)]
        grows = _grows(terms, atom)
        low = max(low, (max if grows == -1 else min)(f[0] for f in found))
        high = min(high, (min if grows == 1 else max)(f[1] for f in found))
    return low, high


def _replaced(terms: Terms, atom: Atom, by: Terms) -> Terms:
    """The terms with something in the place of an atom."""
    total: Terms = ()
    for m, c in terms:
        product: Terms = ((tuple(a for a in m if a != atom), c),)
        for _ in range(m.count(atom)):
            product = multiplied(product, by)
        total = added(total, product, 1)
    return total


def _grows(terms: Terms, atom: Atom) -> int:
    """1 where terms do not fall as the atom grows, -1 where they do not rise, 0 where neither is known."""
    signs: set[int] = set()
    for m, c in terms:
        if atom in m:
            rest = tuple(a for a in m if a != atom)
            low, high = _interval(((rest, c),))
            known = m.count(atom) == 1 and (low >= 0 or high <= 0)
            signs.add((1 if low >= 0 else -1) if known else 0)
    return signs.pop() if len(signs) == 1 else 0


def _interval(terms: Terms) -> tuple[int, int]:
    """The bounds term by term."""
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
    if isinstance(atom, Least):
        a, b = bounds_of(atom.a), bounds_of(atom.b)
        return min(a[0], b[0]), min(a[1], b[1])
    low, high = bounds_of(atom.number)
    return low // atom.divisor, high // atom.divisor


def symbols_of(terms: Terms) -> set[Symbol]:
    """The symbols that occur."""
    found: set[Symbol] = set()
    for m, _ in terms:
        for atom in m:
            match atom:
                case Symbol():
                    found.add(atom)
                case Quotient(number):
                    found |= symbols_of(number)
                case Least(a, b):
                    found |= symbols_of(a) | symbols_of(b)
    return found


def value_of(terms: Terms, sizes: Mapping[str, int]) -> int:
    """The number for given sizes of the symbols, by name; raises KeyError: a symbol has none."""
    total = 0
    for m, c in terms:
        for atom in m:
            match atom:
                case Symbol():
                    c *= sizes[atom.name] // atom.unit
                case Quotient(number, divisor):
                    c *= value_of(number, sizes) // divisor
                case Least(a, b):
                    c *= min(value_of(a, sizes), value_of(b, sizes))
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
    return "".join(parts).removeprefix("+") or "0"


def _atom_text(atom: Atom, full: bool) -> str:
    if isinstance(atom, Symbol):
        return str(atom) if full else atom.name
    if isinstance(atom, Least):
        return str(atom) if full else f"min({text(atom.a, False)}, {text(atom.b, False)})"
    return str(atom) if full else f"({text(atom.number, False)})//{atom.divisor}"
