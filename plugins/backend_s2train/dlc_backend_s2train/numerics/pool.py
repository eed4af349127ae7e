"""Pools that the post-processing unit cannot do: overlapping or padded windows, and averages.

Sums are in the order of taps, row-major, in both directions; a window's average is over its elements inside the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from dlc_backend_s2train.numerics.operands import Array, OperandError, room
from dlc_backend_s2train.program import Geometry

_EMPTY: Final = "a window of the pool holds nothing of the data"
_Places = tuple[slice, slice]


def max_pool(x: Array, g: Geometry) -> tuple[Array, Array]:
    """x[n, C, hi, wi] → y[n, C, ho, wo] and the number of the first maximum's tap (u8); a NaN counts as greatest."""
    y = np.full(room(*x.shape[:2], g.ho, g.wo), -np.inf, np.float32)
    taps = np.zeros(y.shape, np.uint8)
    seen = np.zeros(y.shape[2:], np.bool_)
    for tap, out, into in _taps(g):
        new, old = x[(..., *into)], y[(..., *out)]
        better = (new > old) | (np.isnan(new) & ~np.isnan(old)) | ~seen[out]
        y[(..., *out)] = np.where(better, new, old)
        taps[(..., *out)] = np.where(better, np.uint8(tap), taps[(..., *out)])
        seen[out] = True
    if not seen.all():
        raise OperandError(_EMPTY)
    return y, taps


def max_pool_gradient(dy: Array, taps: Array, g: Geometry) -> Array:
    """dy[n, C, ho, wo] → dx[n, C, hi, wi]: each gradient to the tap that was greatest."""
    dx = np.zeros(room(*dy.shape[:2], g.hi, g.wi), np.float32)
    for tap, out, into in _taps(g):
        dx[(..., *into)] += np.where(taps[(..., *out)] == tap, dy[(..., *out)], np.float32(0))
    return dx


def average_pool(x: Array, g: Geometry) -> Array:
    """x[n, C, hi, wi] → y[n, C, ho, wo]."""
    y = np.zeros(room(*x.shape[:2], g.ho, g.wo), np.float32)
    for _, out, into in _taps(g):
        y[(..., *out)] += x[(..., *into)]
    return y / _counts(g)


def average_pool_gradient(dy: Array, g: Geometry) -> Array:
    """dy[n, C, ho, wo] → dx[n, C, hi, wi]."""
    shares = dy / _counts(g)
    dx = np.zeros(room(*dy.shape[:2], g.hi, g.wi), np.float32)
    for _, out, into in _taps(g):
        dx[(..., *into)] += shares[(..., *out)]
    return dx


def _taps(g: Geometry) -> Iterator[tuple[int, _Places, _Places]]:
    """Number of each tap, the windows in which it lies inside the data, and where it lies there."""
    window, stride, pad = g.pool
    if not 1 <= window <= min(g.hi, g.wi) + 2 * pad or stride < 1 or not 0 <= pad < window:
        raise OperandError(f"a pool of window {window}, stride {stride}, pad {pad} does not fit {g.hi} x {g.wi}")
    for tap in range(window * window):
        rows = _range(tap // window - pad, stride, g.hi, g.ho)
        columns = _range(tap % window - pad, stride, g.wi, g.wo)
        if rows is not None and columns is not None:
            yield tap, (rows[0], columns[0]), (rows[1], columns[1])


def _range(shift: int, stride: int, size: int, count: int) -> tuple[slice, slice] | None:
    """Windows i for which i·stride + shift is in the data, and those places."""
    low = max(0, -(shift // stride))
    high = min(count, (size - 1 - shift) // stride + 1)
    if low >= high:
        return None
    begin = low * stride + shift
    return slice(low, high), slice(begin, begin + (high - low - 1) * stride + 1, stride)


def _counts(g: Geometry) -> Array:
    """How many elements of the data each window holds."""
    counts = np.zeros(room(g.ho, g.wo), np.float32)
    for _, out, _ in _taps(g):
        counts[out] += 1
    if not counts.all():
        raise OperandError(_EMPTY)
    return counts
