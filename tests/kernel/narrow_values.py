"""Elements to try conversions with: every one of a small type, edges and halves between neighbours of the others."""

from __future__ import annotations

from functools import cache

import numpy as np

from dlc.base.types import NARROW, Array, DType, bool_, in_compute_type


@cache
def values_of(dtype: DType) -> Array:
    """Every element of a type of up to 16 bits; of larger ones those at which conversions change."""
    if dtype is bool_:
        return np.array([False, True])
    if dtype.bits <= 16:
        bits = np.arange(1 << dtype.bits, dtype=f"u{dtype.itemsize}")
        return bits.view(dtype.numpy)
    random = np.random.default_rng(0)
    if dtype.is_float:
        with np.errstate(over="ignore"):
            return _floats().astype(dtype.numpy)
    low, high = dtype.limits
    whole = [low, low + 1, high, high - 1, *range(-40 if low < 0 else 0, 300)]
    whole += [s * ((1 << k) + d) for k in range(2, dtype.bits - 1) for d in (-1, 0, 1) for s in (1, -1)]
    found = np.array([v for v in whole if low <= v <= high], dtype.numpy)
    return np.concatenate([found, random.integers(low, high, 4000, dtype.numpy.type)])


def _floats() -> Array:
    """Values of narrow types, what lies halfway between two of them, and what is just above or below that."""
    found = [np.array([np.inf, -np.inf, np.nan, -np.nan, 0.0, -0.0, 1e30, -1e30, 1e-45, 3.4e38])]
    random = np.random.default_rng(0)
    found.append(random.standard_normal(4000) * np.exp2(random.integers(-140, 128, 4000)))
    for t in NARROW:
        if t.is_float:
            with np.errstate(all="ignore"):
                own = np.unique(values_of(t).astype(np.float64))
                own = own[np.isfinite(own)]
                halves = ((own[1:] + own[:-1]) / 2).astype(np.float32)
                near = [np.nextafter(halves, np.float32(s * np.inf)).astype(np.float64) for s in (1, -1)]
            ends = own[[0, -1]]
            found += [own, halves.astype(np.float64), *near, ends * 1.01, ends * 1.03, ends * 1.1, ends * 1.5]
    return np.concatenate(found)


def same(found: Array, expected: Array) -> bool:
    """Equal values, where NaN equals NaN; the sign of a zero counts."""
    a, b = in_compute_type(found), in_compute_type(expected)
    if a.dtype.kind != "f":
        return bool(np.array_equal(a, b))
    number = ~np.isnan(a)
    return bool(np.array_equal(a, b, equal_nan=True) and np.array_equal(np.signbit(a[number]), np.signbit(b[number])))
