"""`Traced`: integers as functions of one element of an input each, in pieces: y = slope·x + offset for x in low … high.

Casts, movements, sums with constants, choices by comparison and what is made of these (minimum, clipping, wrapping of
negative subscripts) keep this form. Everything else is unknown, and so are values that come from two elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final, TypeAlias

import numpy as np

from dlc.base.allowed import Interval
from dlc.base.types import Array

LOW: Final = -(1 << 62)
HIGH: Final = 1 << 62
"""No bound: beyond every value that numbers here are exact for."""
CONSTANT: Final = -1
UNKNOWN: Final = -2
_LARGEST: Final = 1 << 53
_STEEPEST: Final = 1 << 31
_MOST_PIECES: Final = 12


def _number(value: int) -> Array:
    return np.asarray(value, np.int64)


_ZERO: Final = _number(0)
_ONE: Final = _number(1)


@dataclass(frozen=True)
class Piece:
    """One piece of every element; where low > high it has none. Arrays broadcast against `Traced.source`."""

    low: Array
    high: Array
    slope: Array
    offset: Array

    def moved(self, change: Callable[[Array], Array]) -> Piece:
        """The same change of all arrays."""
        return Piece(*map(change, (self.low, self.high, self.slope, self.offset)))

    def within(self, low: Array, high: Array) -> Piece:
        """The piece on a part of its domain."""
        return Piece(np.maximum(self.low, low), np.minimum(self.high, high), self.slope, self.offset)

    def where(self, keep: Array) -> Piece:
        """The piece where a condition holds, none elsewhere."""
        return Piece(np.where(keep, self.low, 1), np.where(keep, self.high, 0), self.slope, self.offset)

    def preimage(self, interval: Interval) -> tuple[Array, Array]:
        """(low, high) of the x in the domain whose values lie in an interval; low > high for none."""
        below, above = interval[0] - self.offset, interval[1] - self.offset
        flat = self.slope == 0
        steep = np.where(flat, 1, self.slope)
        low = -(-np.where(steep > 0, below, above) // steep)
        high = np.where(steep > 0, above, below) // steep
        inside = (below <= 0) & (above >= 0)
        low = np.where(flat, np.where(inside, LOW, 1), low)
        high = np.where(flat, np.where(inside, HIGH, 0), high)
        return np.maximum(self.low, low), np.minimum(self.high, high)


@dataclass(frozen=True)
class Traced:
    """Elements of a value."""

    source: Array
    """Number of the element of an input that each depends on, `CONSTANT` or `UNKNOWN`."""
    pieces: tuple[Piece, ...]

    @classmethod
    def constant(cls, values: Array) -> Traced:
        """Numbers that are known; what stands for "no bound" comes near enough, beyond every extent."""
        offset = np.clip(np.asarray(values), -_LARGEST, _LARGEST).astype(np.int64)
        return cls(np.full(offset.shape, CONSTANT, np.int64), (_piece(_ZERO, offset),))

    @classmethod
    def elements(cls, source: Array) -> Traced:
        """Elements of inputs themselves."""
        return cls(source, (_piece(_ONE, _ZERO),))

    def at(self, index: tuple[Array, ...]) -> Traced:
        """Elements at these subscripts (numpy's advanced indexing)."""
        shape = self.source.shape

        def taken(a: Array) -> Array:
            return np.broadcast_to(a, shape)[index] if a.ndim else a

        return Traced(self.source[index], tuple(p.moved(taken) for p in self.pieces))

    def placed(self, into: Traced, index: tuple[Array, ...]) -> Traced:
        """`into` with the elements at these subscripts replaced by own ones, in order."""
        shape, at = into.source.shape, self.source.shape

        def written(old: Array, new: Array) -> Array:
            if not old.ndim and not new.ndim and old == new:
                return old
            whole = np.array(np.broadcast_to(old, shape))
            whole[index or ...] = np.broadcast_to(new, at)
            return whole

        pairs = zip_longest(into.pieces, self.pieces, fillvalue=_NOTHING)
        fields = ("low", "high", "slope", "offset")
        pieces = (Piece(*(written(getattr(a, f), getattr(b, f)) for f in fields)) for a, b in pairs)
        return Traced(written(into.source, self.source), tuple(pieces))


Value: TypeAlias = Traced | Array
"""Traced, or known."""
Binary: TypeAlias = Callable[[Value, Value], Traced]


def _piece(slope: Array, offset: Array) -> Piece:
    return Piece(_number(LOW), _number(HIGH), slope, offset)


_NOTHING: Final = Piece(_ONE, _ZERO, _ZERO, _ZERO)


def traced(value: Value) -> Traced:
    """Known values as traced ones."""
    return value if isinstance(value, Traced) else Traced.constant(value)


def apply_traced(fn: str, args: Sequence[Value]) -> Traced:
    """A scalar function of arguments of which at least one is not known."""
    if fn in _CASTS and len(args) == 1:
        return traced(args[0])
    if fn not in _RULES:
        return Traced(np.broadcast_to(_number(UNKNOWN), np.broadcast_shapes(*map(_shape, args))), (_NOTHING,))
    return _RULES[fn](*args)


def _shape(value: Value) -> tuple[int, ...]:
    return value.source.shape if isinstance(value, Traced) else np.shape(value)


def _made(source: Array, pieces: Iterator[Piece]) -> Traced:
    """Without pieces that nothing falls into; unknown where numbers would not be exact, or pieces are too many."""
    kept = tuple(p for p in pieces if (p.low <= p.high).any()) or (_NOTHING,)
    for p in kept:
        source = np.where((abs(p.offset) > _LARGEST) | (abs(p.slope) > _STEEPEST), UNKNOWN, source)
    if len(kept) > _MOST_PIECES:
        return Traced(np.full_like(source, UNKNOWN), (_NOTHING,))
    return Traced(source, kept)


def _source(*values: Traced) -> Array:
    """That of all arguments; unknown where two depend on different elements."""
    found = values[0].source
    for v in values[1:]:
        alike = (found == v.source) | (v.source == CONSTANT)
        found = np.where(alike, found, np.where(found == CONSTANT, v.source, UNKNOWN))
    return found


def _pairs(a: Traced, b: Traced) -> Iterator[tuple[Piece, Piece]]:
    """Pieces of both on the domain that they have in common."""
    for p in a.pieces:
        for q in b.pieces:
            yield p.within(q.low, q.high), q


def _add(a: Value, b: Value) -> Traced:
    x, y = traced(a), traced(b)
    return _made(_source(x, y), (Piece(p.low, p.high, p.slope + q.slope, p.offset + q.offset) for p, q in _pairs(x, y)))


def _neg(a: Value) -> Traced:
    x = traced(a)
    return Traced(x.source, tuple(Piece(p.low, p.high, -p.slope, -p.offset) for p in x.pieces))


def _sub(a: Value, b: Value) -> Traced:
    return _add(a, _neg(b))


def _mul(a: Value, b: Value) -> Traced:
    """One factor is constant in every piece, and small enough for products to be exact."""
    x, y = traced(a), traced(b)
    source, pieces = _source(x, y), list[Piece]()
    for p, q in _pairs(x, y):
        exact = (p.slope == 0) | (q.slope == 0)
        small = abs(p.offset.astype(np.float64) * q.offset) <= _LARGEST
        source = np.where((exact & small) | (p.low > p.high), source, UNKNOWN)
        slope, offset = p.slope * q.offset + q.slope * p.offset, p.offset * q.offset
        pieces.append(Piece(p.low, p.high, slope, offset))
    return _made(source, iter(pieces))


def _less(a: Value, b: Value) -> Traced:
    """1 where a - b is below 0, else 0."""
    return _split(_sub(a, b), ((LOW // 2, -1), 1), ((0, HIGH // 2), 0))


def _equal(a: Value, b: Value) -> Traced:
    return _split(_sub(a, b), ((LOW // 2, -1), 0), ((0, 0), 1), ((1, HIGH // 2), 0))


def _split(d: Traced, *cases: tuple[Interval, int]) -> Traced:
    """The number of the case that the value falls into."""
    found = (Piece(*p.preimage(interval), _ZERO, _number(number)) for p in d.pieces for interval, number in cases)
    return _made(d.source, found)


def _select(c: Value, a: Value, b: Value) -> Traced:
    x, y = traced(a), traced(b)
    if not isinstance(c, Traced):
        zero, keep = np.zeros(np.shape(c), np.int64), np.asarray(c, np.bool_)
        source = np.where(keep, x.source + zero, y.source + zero)
        return _made(source, iter([*(p.where(keep) for p in x.pieces), *(p.where(~keep) for p in y.pieces)]))
    chosen = [(r, p, 1) for r, p in _pairs(c, x)] + [(r, p, 0) for r, p in _pairs(c, y)]
    domain = (Piece(r.low, r.high, p.slope, p.offset).where(r.offset == hit) for r, p, hit in chosen)
    return _made(_source(c, x, y), domain)


def _not(a: Value) -> Traced:
    return _sub(_ONE, a)


def _swapped(rule: Binary) -> Binary:
    return lambda a, b: rule(b, a)


def _inverted(rule: Binary) -> Binary:
    return lambda a, b: _not(rule(a, b))


def _and(a: Value, b: Value) -> Traced:
    return _select(a, b, _ZERO)


def _or(a: Value, b: Value) -> Traced:
    return _select(a, _ONE, b)


def _min(a: Value, b: Value) -> Traced:
    return _select(_less(b, a), b, a)


def _max(a: Value, b: Value) -> Traced:
    return _select(_less(a, b), b, a)


def _abs(a: Value) -> Traced:
    return _select(_less(a, _ZERO), _neg(a), a)


def _truth(a: Value) -> Traced:
    return _not(_equal(a, _ZERO))


_RULES: Final[Mapping[str, Callable[..., Traced]]] = {
    "add": _add,
    "sub": _sub,
    "neg": _neg,
    "mul": _mul,
    "lt": _less,
    "gt": _swapped(_less),
    "le": _inverted(_swapped(_less)),
    "ge": _inverted(_less),
    "eq": _equal,
    "ne": _inverted(_equal),
    "and": _and,
    "or": _or,
    "not": _not,
    "select": _select,
    "min": _min,
    "max": _max,
    "abs": _abs,
    "bool": _truth,
}
_CASTS: Final = frozenset(f"{kind}{bits}" for kind in "iu" for bits in (8, 16, 32, 64))
"""Integers stay what they are: what wraps is refused where it comes in, as it names nothing that anybody meant."""
