"""Random bits: functions of a seed, the number of the run and an element's place, so that no order matters.

They are those of `dlc.ops.random` with the run as step, stream 0: what dropout keeps is what dlc's other backends keep.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from dlc.ops.random import random_words, scale_of
from dlc_backend_s2train.numerics.operands import Array, OperandError

_WORDS: Final = 1 << 32
_CHUNK: Final = 1 << 16


def words(shape: tuple[int, ...], seed: int, run: int, first: int = 0) -> Array:
    """u32 words as fp64 of `shape`, those of the elements from number `first` on."""
    result = np.empty(math.prod(shape), np.float64)
    for low in range(0, result.size, _CHUNK):
        high = min(low + _CHUNK, result.size)
        result[low:high] = random_words(np.arange(first + low, first + high, dtype=np.uint64), seed, run, 0)
    return result.reshape(shape)


def kept(shape: tuple[int, ...], keep: float, seed: int, run: int, first: int = 0) -> Array:
    """bool of `shape`: which elements dropout keeps, each with probability `keep`."""
    return words(shape, seed, run, first) >= round((1.0 - _probability(keep)) * _WORDS)


def dropped_out(x: Array, bits: Array, keep: float) -> Array:
    """x · bit / keep; an infinite x that is dropped is 0 all the same."""
    scale = np.float32(scale_of(1.0 - _probability(keep)))
    return np.where(bits, x * scale, np.float32(0))


def pruned(g: Array, threshold: float, seed: int, run: int, first: int = 0) -> Array:
    """|g| < t becomes sign(g)·t with probability |g| / t, else 0: the mean stays (Ye et al., SparseTrain, DAC 2020)."""
    t = np.float32(threshold)
    if not t > 0:
        return g
    # Both sides are exact or one fp64 rounding away: the same comparison on every machine.
    promoted = words(g.shape, seed, run, first) / _WORDS < np.abs(g.astype(np.float64)) / np.float64(t)
    small = np.where(promoted, np.copysign(t, g), np.float32(0))
    return np.where(np.abs(g) < t, small, g)


def _probability(keep: float) -> float:
    if not 0.0 <= keep <= 1.0:
        raise OperandError(f"dropout keeps an element with a probability in [0, 1], not {keep}")
    return keep
