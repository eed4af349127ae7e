"""Orders of rows that depend on a seed alone: the same on every machine, with every version of NumPy."""

from __future__ import annotations

from typing import Final

import numpy as np

from dlc.base.types import Array

_GAMMA: Final = 0x9E3779B97F4A7C15
_MASK: Final = (1 << 64) - 1


def permutation(count: int, *seeds: int) -> Array:
    """0 … count - 1 in an order that `seeds` (any integers) decide, as i64[count].

    Rows are sorted by a 64-bit number each: SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
    Generators, OOPSLA 2014) of the row's number in a stream that the seeds choose; equal numbers keep their order.
    """
    stream = 0
    for seed in seeds:
        mixed = _mix(np.array([stream ^ (seed & _MASK)], np.uint64))
        stream = (int(mixed[0]) + _GAMMA) & _MASK
    keys = _mix(np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GAMMA) + np.uint64(stream))
    return np.argsort(keys, kind="stable").astype(np.int64)


def _mix(z: Array) -> Array:
    """The finaliser of SplitMix64; arithmetic is modulo 2^64."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
