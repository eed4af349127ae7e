"""Extents: dimensions that are numbers, or integer expressions over named symbols that are bound when a program runs.

    batch                   a symbol with bounds, 1..64
    2*seq + 1, batch*seq    polynomials over symbols
    (h + 1)//2              quotients by numbers
    min(found, 100)         the smaller one of two, where either may be

A `Dim` is such a polynomial in one normal form, so equal expressions are equal objects. It takes part in shape
arithmetic like a number. What depends on the value of a symbol is decided by its bounds where they suffice; where they
do not, `Undecided` is raised: no decision of the compiler is ever right for some sizes only.

    batch + 0 == batch      true: one normal form
    batch == 1              false, unless the bounds leave nothing else: not known to be equal
    batch < 65              true by the bounds
    batch < 7               Undecided

Tensors with such dimensions are laid out as if every dimension had its largest size, its *capacity*: strides are
numbers, whatever the sizes of a call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from dlc.base.polynomials import (
    Least,
    Quotient,
    Symbol,
    Terms,
    added,
    bounds_of,
    divided_terms,
    least_terms,
    multiplied,
    quotient_terms,
    symbols_of,
    text,
    value_of,
)


class Undecided(ValueError):
    """A decision that the bounds of symbols leave open, or a place where only a number can stand."""


# Type checkers see a number: shape arithmetic is written once, for numbers and for these. When it runs it is none, so
# that whatever can use a number only (a loop that is unrolled, an array's size) fails instead of taking one for it.
_Number: Any = int if TYPE_CHECKING else object


class Dim(_Number):
    """An integer polynomial over atoms with at least one symbol in it; numbers are never of this class."""

    __slots__ = ("_hash", "_text", "terms")
    terms: Terms

    def __new__(cls, terms: Terms) -> Dim:
        self = object.__new__(cls)
        object.__setattr__(self, "terms", terms)
        object.__setattr__(self, "_hash", hash(terms))
        object.__setattr__(self, "_text", text(terms) if len(terms) <= _MOST_TERMS else "")
        if not 0 < len(self._text) <= _MOST_TEXT:
            raise Undecided(f"a size is computed by a formula of more than {_MOST_TERMS} terms")
        return self

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Dim cannot be changed: {name}")

    def __reduce__(self) -> Any:
        return Dim, (self.terms,)

    def __str__(self) -> str:
        """The expression with the bounds of its symbols: `2*seq(1,128)+1`."""
        return self._text

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        return format(self._text, spec)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        """Whether both are known to be equal."""
        return isinstance(other, Dim) and self.terms == other.terms

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: Any) -> Any:
        return _decided(self, "<", other)

    def __le__(self, other: Any) -> Any:
        return _decided(self, "<=", other)

    def __gt__(self, other: Any) -> Any:
        return _decided(self, ">", other)

    def __ge__(self, other: Any) -> Any:
        return _decided(self, ">=", other)

    def __bool__(self) -> bool:
        low, high = bounds(self)
        if low > 0 or high < 0:
            return True
        if low == high:
            return False
        raise Undecided(f"whether {self} is 0 is not known before the program runs")

    def __index__(self) -> int:
        raise _no_number(self)

    __int__ = __index__

    def __float__(self) -> float:
        raise _no_number(self)

    def __add__(self, other: Any) -> Any:
        return _sum(self, other, 1) if _takes(self, other) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return _sum(other, self, 1) if _takes(self, other) else NotImplemented

    def __sub__(self, other: Any) -> Any:
        return _sum(self, other, -1) if _takes(self, other) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return _sum(other, self, -1) if _takes(self, other) else NotImplemented

    def __neg__(self) -> Any:
        return _sum(0, self, -1)

    def __pos__(self) -> Any:
        return self

    def __mul__(self, other: Any) -> Any:
        return _product(self, other) if _takes(self, other) else NotImplemented

    def __rmul__(self, other: Any) -> Any:
        return _product(other, self) if _takes(self, other) else NotImplemented

    def __floordiv__(self, other: Any) -> Any:
        return _quotient(self, other) if _takes(self, other) else NotImplemented

    def __rfloordiv__(self, other: Any) -> Any:
        return _quotient(other, self) if _takes(self, other) else NotImplemented

    def __mod__(self, other: Any) -> Any:
        return self - _quotient(self, other) * other if _takes(self, other) else NotImplemented

    def __rmod__(self, other: Any) -> Any:
        return other - _quotient(other, self) * self if _takes(self, other) else NotImplemented

    def __truediv__(self, other: Any) -> Any:
        raise _no_number(self)

    __rtruediv__ = __truediv__


_MOST_TERMS: Final = 128
_MOST_TEXT: Final = 4096
"""Limits on formulas: shapes of models need a few terms; a file made for it could double them with every node."""

Extent: TypeAlias = "int | Dim"


def _no_number(e: Extent) -> Undecided:
    return Undecided(f"the size {shown(e)} is known only when the program runs, and here it has to be one number")


def _takes(e: Dim, other: object) -> bool:
    """Whether arithmetic goes on with another number. Raises Undecided: it is one of floating point."""
    if isinstance(other, float):
        raise _no_number(e)
    return is_extent(other)


def is_extent(value: object) -> bool:
    """Whether a value is a number or a `Dim`."""
    return isinstance(value, Dim) or (isinstance(value, int) and not isinstance(value, bool))


def symbol(name: str, low: int, high: int, unit: int = 1) -> Extent:
    """The size of a symbol; a number where the bounds leave one only.

    Raises:
        ValueError: bounds or unit are no sizes, or the name has other than word characters.
    """
    if not 0 <= low <= high or unit < 1 or not NAME.fullmatch(name):
        raise ValueError(f"{name} from {low} to {high} in steps of {unit}")
    return low * unit if low == high else Dim(Symbol(name, low, high, unit).terms)


NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


# ---- arithmetic


def _terms(e: Extent) -> Terms:
    return e.terms if isinstance(e, Dim) else (((), e),) if e else ()


def of_terms(terms: Terms) -> Extent:
    """A number where there is no symbol."""
    if not terms:
        return 0
    return terms[0][1] if terms[0][0] == () else Dim(terms)


def _sum(a: Extent, b: Extent, sign: int) -> Extent:
    return of_terms(added(_terms(a), _terms(b), sign))


def _product(a: Extent, b: Extent) -> Extent:
    return of_terms(multiplied(_terms(a), _terms(b)))


def _quotient(a: Extent, b: Extent) -> Extent:
    if (exact := divided(a, b)) is not None:
        return exact
    if isinstance(b, Dim) or b <= 0:
        raise Undecided(f"{shown(a)} divided by {shown(b)} is no size that is known")
    return of_terms(quotient_terms(_terms(a), b))


def divided(a: Extent, b: Extent) -> Extent | None:
    """a / b where that is exact whatever the symbols are, else None."""
    if a == b and bounds(b)[0] > 0:
        return 1
    found = divided_terms(_terms(a), _terms(b))
    return None if found is None else of_terms(found)


def is_multiple(a: Extent, b: Extent) -> bool:
    """Whether one size is a multiple of another, whatever the symbols are."""
    if isinstance(a, Dim) or isinstance(b, Dim):
        return divided(a, b) is not None
    return a % b == 0


def smaller(a: Extent, b: Extent) -> Extent:
    """The smaller of two sizes."""
    low, high = bounds(a - b)
    return b if low >= 0 else a if high <= 0 else of_terms(least_terms(_terms(a), _terms(b)))


def larger(a: Extent, b: Extent) -> Extent:
    """The larger of two sizes."""
    return a + b - smaller(a, b)


def not_negative(e: Extent) -> Extent:
    """The extent, or so much above it that it is negative for no sizes."""
    return e - min(0, bounds(e)[0])


# ---- what is known of a value


def bounds(e: Extent) -> tuple[int, int]:
    """Smallest and largest value for all sizes of the symbols."""
    return bounds_of(e.terms) if isinstance(e, Dim) else (e, e)


def _decided(a: Extent, relation: str, b: Any) -> Any:
    if not is_extent(b):
        return NotImplemented
    low, high = bounds(_sum(a, b, -1))
    yes, no = {
        "<": (high < 0, low >= 0),
        "<=": (high <= 0, low > 0),
        ">": (low > 0, high <= 0),
        ">=": (low >= 0, high < 0),
    }[relation]
    if yes or no:
        return yes
    raise Undecided(f"whether {shown(a)} {relation} {shown(b)} is not known before the program runs")


def capacity(e: Extent) -> int:
    """The largest size: what memory is laid out for."""
    return bounds(e)[1]


def is_open(shape: Iterable[Extent]) -> bool:
    """Whether a shape has a dimension that is no number."""
    return any(isinstance(d, Dim) for d in shape)


def symbols(*extents: Extent) -> tuple[Symbol, ...]:
    """The symbols that occur, each once, in order of their names."""
    return tuple(sorted({s for e in extents if isinstance(e, Dim) for s in symbols_of(e.terms)}))


def settled(e: Extent, sizes: Mapping[Symbol, Extent]) -> Extent:
    """The extent with sizes for some of its symbols."""
    if not isinstance(e, Dim):
        return e
    total: Extent = 0
    for monomial, factor in e.terms:
        term: Extent = factor
        for atom in monomial:
            match atom:
                case Quotient(number, divisor):
                    term = term * (settled(of_terms(number), sizes) // divisor)
                case Least(a, b):
                    term = term * smaller(settled(of_terms(a), sizes), settled(of_terms(b), sizes))
                case _:
                    term = term * (sizes[atom] // atom.unit if atom in sizes else Dim((((atom,), 1),)))
        total = total + term
    return total


def likely(e: Extent) -> int:
    """The largest size, with the least one of what nobody limits: what there surely is room for."""
    return capacity(settled(e, {s: s.least for s in symbols(e) if not s.limited}))


def value(e: Extent, sizes: Mapping[str, int]) -> int:
    """The number for given sizes of the symbols, by name; raises KeyError: a symbol has none."""
    return value_of(e.terms, sizes) if isinstance(e, Dim) else e


@lru_cache(maxsize=256)
def line_of(d: Dim, of: Symbol) -> tuple[int, int] | None:
    """(factor, rest) of a dimension that is factor times the units of one symbol plus a number."""
    terms = dict(d.terms)
    rest, factor = terms.pop((), 0), terms.pop((of,), 0)
    return (factor, rest) if factor > 0 and not terms else None


def shown(e: Extent) -> str:
    """An extent as people write it: `2*seq+1`, without bounds."""
    return text(e.terms, False) if isinstance(e, Dim) else str(e)
