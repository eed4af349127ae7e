"""Residues of a prime with infinities beside them: sums and products, and functions that only equal arguments agree on.

Residues are whole floats from -P/2 to P/2; NaN stands for a value that nobody knows, and is passed on. Infinities
absorb, so that sums and products with them have no order either:

    x ± inf, inf*x, inf/x           infinite; of sums with both +inf, whose negative terms are those that are subtracted
    inf - inf, 0*inf, inf/inf, x/0  infinite, as all that has no value: so they are told apart from what has one
    x/inf, exp(-inf), atan(inf)     the residues of 0, 0 and pi/2: functions of one argument have their limits
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Final
from zlib import crc32

import numpy as np

from dlc.base.types import Array
from dlc.kernel.scalar import SCALARS, combine_at, combine_runs

P: Final = (1 << 26) - 5
"""The largest prime below 2^26: of products below P²/4 the quotient by P is found exactly, by one multiplication."""
HALF: Final = P // 2
NAN: Final = float(crc32(b"nan") % HALF)
"""The residue that stands for NaN."""
SMALL: Final = 1 << 20
"""Residues up to here stand for the integer that they are, when they are converted to one or compared."""
_INVERSE: Final = 1.0 / P


def reduced(x: Array) -> Array:
    """The residues of exact integers below 2^53."""
    return x - P * np.rint(x * _INVERSE)


def residue(value: float) -> float:
    """The residue of a number; infinities are their own."""
    if math.isnan(value):
        return NAN
    if math.isinf(value):
        return value
    exact = Fraction(value)
    found = exact.numerator * pow(exact.denominator, P - 2, P) % P
    return float(found - P if found > HALF else found)


def differ(a: Array, b: Array) -> Array:
    """Where two are not the same; infinities are, of either sign."""
    return (a != b) & ~(np.isinf(a) & np.isinf(b))


def add(a: Array, b: Array) -> Array:
    """a + b."""
    found = reduced(a + b)
    return found if np.isfinite(found).all() else np.where(np.isinf(a) | np.isinf(b), _infinity(a, b), found)


def sub(a: Array, b: Array) -> Array:
    """a - b."""
    return add(a, -b)


def _infinity(a: Array, b: Array) -> Array:
    return np.where((a == np.inf) | (b == np.inf), np.inf, -np.inf)


def mul(a: Array, b: Array) -> Array:
    """a * b: an infinity keeps its sign, but for -1 and -inf, since other residues have none."""
    found = reduced(a * b)
    if np.isfinite(found).all():
        return found
    of_b = np.where(np.isinf(b), np.where(a == -1, -b, b), found)
    return np.where(np.isinf(a), np.where((b == -1) | (b == -np.inf), -a, a), of_b)


def div(a: Array, b: Array) -> Array:
    """a / b; infinite where b is 0."""
    return mul(a, inverse(b))


def inverse(x: Array) -> Array:
    """1/x, infinite of 0 and 0 of infinities; else by Fermat: x^(P-2)."""
    power: Array = np.where(np.isinf(x), 0.0, x)
    found, left = np.ones_like(power), P - 2
    while left:
        if left & 1:
            found = reduced(found * power)
        power, left = reduced(power * power), left >> 1
    return np.where(x == 0, np.inf, found)


def power(x: Array, quarters: int) -> Array:
    """x to so many quarters."""
    whole, rest = divmod(abs(quarters), 4)
    root = random_residues("sqrt", (x,))
    found = np.ones_like(x)
    for factor in (*[x] * whole, *[root] * (rest >= 2), *[random_residues("sqrt", (root,))] * (rest % 2)):
        found = mul(found, factor)
    return found if quarters >= 0 else inverse(found)


def add_at(out: Array, index: tuple[Array, ...], value: Array) -> None:
    """out[index] += value, for every index in turn."""
    if np.isfinite(value).all() and np.isfinite(out).all():
        combine_at("add", out, index, value)
        out[...] = reduced(out)
        return
    finite, ends = np.zeros_like(out), np.zeros_like(out)
    combine_at("add", finite, index, np.where(np.isinf(value), 0.0, value))
    for end in (-np.inf, np.inf):
        here = np.zeros(out.shape)
        combine_at("max", here, index, (value == end).astype(np.float64))
        ends = np.where(here > 0, end, ends)
    out[...] = add(add(out, reduced(finite)), ends)


def mul_at(out: Array, index: tuple[Array, ...], value: Array) -> None:
    """out[index] *= value, for every index in turn."""
    flat = np.ravel_multi_index(index, out.shape).ravel()
    order = np.argsort(flat, kind="stable")
    places, starts = np.unique(flat[order], return_index=True)
    if len(places):
        runs = products(np.ravel(value)[order][:, None], starts)[:, 0]
        out.flat[places] = mul(out.flat[places], runs)


def sums(values: Array, starts: Array) -> Array:
    """Sums of the runs of rows that begin at `starts`."""
    found = reduced(combine_runs("add", values, starts))
    if np.isfinite(found).all():
        return found
    low, high = (combine_runs("max", (values == end).astype(np.float64), starts) for end in (-np.inf, np.inf))
    return np.where(high > 0, np.inf, np.where(low > 0, -np.inf, found))


def products(values: Array, starts: Array) -> Array:
    """Products of runs of rows: neighbours are multiplied until one row of each run is left."""
    lengths = np.diff(np.append(starts, len(values)))
    while (lengths > 1).any():
        run = np.repeat(np.arange(len(lengths)), lengths)
        first = np.concatenate(([0], np.cumsum(lengths)[:-1]))
        place = np.arange(len(values)) - first[run]
        left = place % 2 == 0
        follows = np.flatnonzero(left & (place + 1 < lengths[run]))
        values = values.copy()
        values[follows] = mul(values[follows], values[follows + 1])
        values, lengths = values[left], (lengths + 1) // 2
    return values


def mixed(*words: Array) -> Array:
    """64 random bits for each combination of 64-bit words (the finaliser of splitmix64, over and over)."""
    state = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):  # they wrap; of scalars numpy tells
        for word in words:
            state = (state ^ word) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0x94D049BB133111EB)
            state = state ^ (state >> np.uint64(31))
    return np.asarray(state)


def words_of(x: Array) -> Array:
    """Values as words of 64 bits; of what nobody knows any."""
    return np.where(np.isnan(x), 0.0, np.clip(x, -P, P)).astype(np.int64).view(np.uint64)


def hashed(fn: str, values: tuple[Array, ...]) -> Array:
    """Random bits that the function and its arguments decide."""
    return mixed(np.asarray(crc32(fn.encode()), np.uint64), *map(words_of, values))


def random_residues(fn: str, values: tuple[Array, ...]) -> Array:
    """A random residue that the function and its arguments decide; NaN of NaN."""
    found: Array = (hashed(fn, values) % np.uint64(P)).astype(np.float64) - HALF
    if all(np.isfinite(v).all() for v in values):
        return found
    if len(values) == 1:
        for end in (-np.inf, np.inf):
            found = np.where(values[0] == end, _limit(fn, end), found)
    unknown = np.asarray(sum(np.isnan(v) for v in values)) > 0
    return np.where(unknown, np.nan, found)


@cache
def _limit(fn: str, end: float) -> float:
    """Of a function at an infinity; infinite where it has none."""
    with np.errstate(all="ignore"):
        found = float(SCALARS[fn].numpy(np.float64(end)))
    return math.inf if math.isnan(found) else residue(found)
