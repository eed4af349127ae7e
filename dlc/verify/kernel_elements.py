"""Which elements of tensors the nests of a kernel read and write, by evaluating their subscripts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from dlc.base.types import Array
from dlc.kernel.check.access import accesses
from dlc.kernel.evaluate import values_over
from dlc.kernel.expr import Axis, Expr, axes_in, loads
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest

MOST_POINTS: Final = 1 << 18
"""Of a nest whose accesses are looked at point by point; of others the subscripts of each dimension by itself."""


def written(kernel: Kernel, result: int = 0) -> Array:
    """Which elements of a result the nests of a kernel write: a truth value each, in memory order."""
    return touched(kernel, kernel.results[result].name, True)


@lru_cache(maxsize=256)
def touched(kernel: Kernel, name: str, stores: bool) -> Array:
    """Which elements of a tensor the nests of a kernel may write, or read."""
    found = np.zeros(kernel.tensors[name].type.capacity, bool)
    for nest in kernel.nests:
        every = accesses(nest)
        store = next(every)
        for access in (store,) if stores else every:
            if access.tensor == name:
                found[points(nest, access.index, access.conditions, kernel.tensors[name].shape)] = True
    return found


def points(nest: Nest, index: Sequence[Expr], conditions: Sequence[Expr], shape: Sequence[int]) -> Array:
    """The numbers of the elements at the points of a nest; of one with many points perhaps of more elements."""
    small = nest.points <= MOST_POINTS and not any(True for e in index for _ in loads(e))
    if not small:
        return _by_dimension(index, shape)
    grid = {a: np.arange(a.extent).reshape([-1 if b is a else 1 for b in nest.axes]) for a in nest.axes}
    extents = tuple(a.extent for a in nest.axes)
    where = [np.broadcast_to(values_over(c, grid), extents) for c in conditions if not any(True for _ in loads(c))]
    keep = np.ones(extents, bool)
    for condition in where:
        keep &= condition.astype(bool)
    return np.broadcast_to(numbers(index, shape, grid), extents)[keep]


def numbers(index: Sequence[Expr], shape: Sequence[int], grid: Mapping[Axis, Array]) -> Array:
    """The numbers in memory order of the elements that subscripts give at values of axes."""
    found = np.zeros((), np.int64)
    for e, n in zip(index, shape, strict=True):
        found = found * n + np.asarray(values_over(e, grid))
    return found


def _by_dimension(index: Sequence[Expr], shape: Sequence[int]) -> Array:
    """Every combination of the subscripts that each dimension has, as far as they are inside the tensor."""
    flat = np.zeros(1, np.int64)
    for e, n in zip(index, shape, strict=True):
        axes = tuple(dict.fromkeys(axes_in(e)))
        if any(True for _ in loads(e)) or math.prod(a.extent for a in axes) > MOST_POINTS:
            own = np.arange(n)
        else:
            grid = {a: np.arange(a.extent).reshape([-1 if b is a else 1 for b in axes]) for a in axes}
            own = np.unique(values_over(e, grid))
            own = own[(own >= 0) & (own < n)]
        flat = (flat[:, None] * n + own).reshape(-1)
    return flat
