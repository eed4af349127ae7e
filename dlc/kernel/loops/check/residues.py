"""Arithmetic in which mistakes do not cancel: floating-point numbers as residues of a prime.

    add, sub, mul, neg, div         those of the field of P elements: exact, in any order
    min, max, abs, comparisons      by the order of the residues -P/2 … P/2
    exp, erf, floor, …              a random function each: equal arguments give equal values, others unrelated ones
    powers to a multiple of 1/4     products of the number, its root and the root of that
    literals                        the residue of the fraction that they are; infinities the extreme residues, and one
                                    residue, which compares with none, is what isnan asks for
    conversions between floats      nothing: rounding is not looked at
    integers and Booleans           as they are

Two sums of products that are not equal as formulas over their operands differ as residues with a probability of about
1 - degree/P for random operands (Schwartz and Zippel); P is 2^26 - 5, so that products of residues are exact in double
precision. A NaN of numpy is no number here: it stands for a value that nobody knows, and is passed on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, Final
from zlib import crc32

import numpy as np

from dlc.base.types import Array, DType
from dlc.kernel.evaluate import Arithmetic
from dlc.kernel.scalar import SCALARS, combine_at, combine_runs

P: Final = (1 << 26) - 5
"""The largest prime below 2^26: of products below P²/4 the quotient by P is found exactly, by one multiplication."""
HALF: Final = P // 2
NAN: Final = float(crc32(b"nan") % HALF)
"""The residue that stands for NaN."""
_INVERSE: Final = 1.0 / P
_SMALL: Final = 1 << 20
"""Residues up to here stand for the integer that they are, when they are converted to one."""


class Unknowable(Exception):
    """Something that must be known, as a condition or a subscript, depends on a value that nobody knows."""


def reduced(x: Array) -> Array:
    """The residues of exact integers below 2^53."""
    return x - P * np.rint(x * _INVERSE)


def residue(value: float) -> float:
    """The residue of a number."""
    if math.isnan(value):
        return NAN
    if math.isinf(value):
        return math.copysign(HALF, value)
    exact = Fraction(value)
    found = exact.numerator * pow(exact.denominator, P - 2, P) % P
    return float(found - P if found > HALF else found)


def _inverse(x: Array) -> Array:
    """1/x, and 0 of 0, by Fermat: x^(P-2)."""
    found, power, left = np.ones_like(x), x, P - 2
    while left:
        if left & 1:
            found = reduced(found * power)
        power, left = reduced(power * power), left >> 1
    return found


def mixed(*words: Array) -> Array:
    """64 random bits for each combination of 64-bit words (the finaliser of splitmix64, over and over)."""
    state = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):  # they wrap; of scalars numpy tells
        for word in words:
            state = (state ^ word) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0x94D049BB133111EB)
            state = state ^ (state >> np.uint64(31))
    return np.asarray(state)


def _words(x: Array) -> Array:
    return np.where(np.isnan(x), 0.0, x).astype(np.int64).view(np.uint64)


def _hashed(fn: str, values: tuple[Array, ...]) -> Array:
    """Random bits that the function and its arguments decide."""
    return mixed(np.asarray(crc32(fn.encode()), np.uint64), *map(_words, values))


def _random(fn: str, values: tuple[Array, ...]) -> Array:
    """A random residue that the function and its arguments decide; NaN of NaN."""
    found = (_hashed(fn, values) % np.uint64(P)).astype(np.float64) - HALF
    unknown = np.asarray(sum(values))
    return np.where(np.isnan(unknown), np.nan, found)


def _add(a: Array, b: Array) -> Array:
    return reduced(a + b)


def _sub(a: Array, b: Array) -> Array:
    return reduced(a - b)


def _mul(a: Array, b: Array) -> Array:
    return reduced(a * b)


def _div(a: Array, b: Array) -> Array:
    return reduced(a * _inverse(b))


def _power(x: Array, quarters: int) -> Array:
    """x to so many quarters."""
    whole, rest = divmod(abs(quarters), 4)
    root = _random("sqrt", (x,))
    found = np.ones_like(x)
    for factor in (*[x] * whole, *[root] * (rest >= 2), *[_random("sqrt", (root,))] * (rest % 2)):
        found = reduced(found * factor)
    return found if quarters >= 0 else _inverse(found)


_QUARTERS: Final[Mapping[float, int]] = {residue(n / 4): n for n in range(-8, 9)}
"""The residues of exponents whose powers are products."""
_FIELD: Final[Mapping[str, Callable[..., Array]]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "neg": np.negative,
    "min": np.minimum,
    "max": np.maximum,
    "abs": np.abs,
    "sign": np.sign,
}
_COMPARING: Final = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


class Field(Arithmetic):
    """Numbers as the module says."""

    def __init__(self) -> None:
        super().__init__()
        self._guesses = False
        self._literals: dict[tuple[type, bool | int | float, DType], Array] = {}

    @contextmanager
    def guessing(self) -> Generator[None]:
        """Comparisons of values that nobody knows are allowed, and false."""
        before, self._guesses = self._guesses, True
        try:
            yield
        finally:
            self._guesses = before

    def numpy(self, dtype: DType) -> Any:
        return np.dtype(np.float64) if dtype.is_float else dtype.numpy

    def literal(self, value: bool | int | float, dtype: DType) -> Array:
        key = type(value), value, dtype
        found = self._literals.get(key)
        if found is None:
            found = np.asarray(residue(float(value))) if dtype.is_float else super().literal(value, dtype)
            self._literals[key] = found
        return found

    def applied(self, fn: str, dtype: DType | None, *values: Array) -> Array:
        scalar = SCALARS[fn]
        is_float = dtype is not None and dtype.is_float
        if scalar.to is not None:
            return self._converted(fn, scalar.to, values[0], is_float, scalar.rule == "bits")
        if not is_float:
            return super().applied(fn, dtype, *values)
        if fn in _FIELD:
            return _FIELD[fn](*values)
        if fn == "pow" and values[1].size == 1 and (quarters := _QUARTERS.get(float(values[1].flat[0]))) is not None:
            return _power(values[0], quarters)
        if (
            (fn in _COMPARING or fn in ("isnan", "isinf"))
            and not self._guesses
            and any(np.isnan(v).any() for v in values)
        ):
            raise Unknowable
        if fn in _COMPARING:
            a, b = values
            ordered = (a != NAN) & (b != NAN)
            return np.asarray(scalar.numpy(a, b) | ~ordered if fn == "ne" else scalar.numpy(a, b) & ordered)
        if fn == "isnan":
            return np.asarray(values[0] == NAN)
        if fn == "isinf":
            return np.asarray(np.abs(values[0]) == HALF)
        return _random(fn, values)

    def _converted(self, fn: str, to: DType, x: Array, is_float: bool, bits: bool) -> Array:
        if not is_float and not bits:
            if not to.is_float:
                return super().applied(fn, None, x)
            x = np.asarray(x)
            return reduced((x % np.asarray(P, x.dtype) if x.dtype.itemsize == 8 else x).astype(np.float64))
        if is_float and to.is_float:
            return x
        if is_float and np.isnan(x).any():
            raise Unknowable
        known = x if is_float else np.asarray(x).astype(np.float64)
        if to.is_float:
            return _random(fn, (known,))
        if to.name == "bool" and not bits:
            return np.asarray(x != 0)
        whole = (_hashed(fn if bits else "whole", (known,)) >> np.uint64(1)).astype(np.int64)
        if not bits:
            whole = np.where(np.abs(x) <= _SMALL, x, whole & 0x7FFF).astype(np.int64)
        return np.asarray(whole != 0 if to.name == "bool" else SCALARS[to.name].value(whole))

    def kept(self, value: Array, dtype: DType) -> Array:
        return value.astype(self.numpy(dtype), copy=False)

    def stored(self, value: Array, to: DType) -> Array:
        return value if to.is_float else super().stored(value, to)

    def loaded(self, value: Array, dtype: DType) -> Array:
        return value.astype(np.float64) if dtype.is_float else super().loaded(value, dtype)

    def combined_at(self, fn: str, dtype: DType, out: Array, index: tuple[Array, ...], value: Array) -> None:
        if not dtype.is_float:
            super().combined_at(fn, dtype, out, index, value)
        elif fn == "mul":
            flat = np.ravel_multi_index(index, out.shape).ravel()
            order = np.argsort(flat, kind="stable")
            places, starts = np.unique(flat[order], return_index=True)
            if len(places):
                runs = _products(np.ravel(value)[order][:, None], starts)[:, 0]
                out.flat[places] = reduced(out.flat[places] * runs)
        else:
            combine_at(fn, out, index, value)
            if fn == "add":
                out[...] = reduced(out)

    def combined_runs(self, fn: str, dtype: DType, values: Array, starts: Array) -> Array:
        if not dtype.is_float:
            return super().combined_runs(fn, dtype, values, starts)
        if fn == "mul":
            return _products(values, starts)
        found = combine_runs(fn, values, starts)
        return reduced(found) if fn == "add" else found


def _products(values: Array, starts: Array) -> Array:
    """Products of runs of rows: neighbours are multiplied until one row of each run is left."""
    lengths = np.diff(np.append(starts, len(values)))
    while (lengths > 1).any():
        run = np.repeat(np.arange(len(lengths)), lengths)
        first = np.concatenate(([0], np.cumsum(lengths)[:-1]))
        place = np.arange(len(values)) - first[run]
        left = place % 2 == 0
        follows = np.flatnonzero(left & (place + 1 < lengths[run]))
        values = values.copy()
        values[follows] = reduced(values[follows] * values[follows + 1])
        values, lengths = values[left], (lengths + 1) // 2
    return values
