"""The order of residues that are compared: literals lie where they are, and among them about as many as beyond.

Residues up to `SMALL` are the integers that they are. A larger one stands for no number, so it may be anywhere: a
random place of its own between two literals that the kernel compares with, or beyond the last. By its residue it
would nearly always be beyond: no sum would be between the ends of a clip, and nothing told what it is there.

    comparisons with 1 and 6:   0 .. 1 a third,  1 .. 6 a third,  6 .. a third;  and -x below -y where y is below x
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from dlc.base.types import Array
from dlc.kernel.expr import Apply, Const, Load, walk
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.check.modular import HALF, SMALL, mixed, residue, words_of
from dlc.kernel.scalar import SCALARS, combine_at, combine_runs

COMPARING: Final = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_ORDERED: Final = COMPARING | {"min", "max"}


class Order:
    """A total order of residues, in which -x is below -y where y is below x."""

    def __init__(self, literals: Iterable[float] = ()) -> None:
        """Of a kernel that compares with these numbers."""
        self._literals = sorted({abs(x) for x in literals if np.isfinite(x) and x})
        self._low = np.asarray([0.0, *self._literals])
        self._wide = np.append(np.diff(self._low), self._low[-1] + HALF)

    def keys(self, x: Array) -> Array:
        """Numbers in the order of the residues: equal ones for equal ones."""
        if not self._literals:
            return x
        size = np.abs(x)
        bits = mixed(words_of(size))
        between = (bits % np.uint64(len(self._low))).astype(np.int64)
        part = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
        found = np.where(size <= SMALL, size, self._low[between] + part * self._wide[between])
        found = np.copysign(np.where(np.isfinite(size), found, size), x)
        for literal in self._literals:
            r = residue(literal)
            found = np.where(x == r, literal, np.where(x == -r, -literal, found))
        return found

    def compared(self, fn: str, a: Array, b: Array) -> Array:
        """Whether a comparison holds."""
        return np.asarray(SCALARS[fn].numpy(*((a, b) if fn in ("eq", "ne") else map(self.keys, (a, b)))))

    def extreme(self, fn: str, a: Array, b: Array) -> Array:
        """The least ("min") or greatest ("max") of two; NaN of NaN."""
        if not self._literals:
            return np.minimum(a, b) if fn == "min" else np.maximum(a, b)
        below = self.keys(a) <= self.keys(b)
        found = np.where(below, a, b) if fn == "min" else np.where(below, b, a)
        return np.where(np.isnan(a) | np.isnan(b), np.nan, found)

    def extreme_at(self, fn: str, out: Array, index: tuple[Array, ...], value: Array) -> None:
        """out[index] = fn(out[index], value), for every index in turn."""
        if not self._literals:
            combine_at(fn, out, index, value)
            return
        best, keys = self.keys(out), self.keys(value)
        combine_at(fn, best, index, keys)
        flat, keys, value = np.broadcast_arrays(np.ravel_multi_index(index, out.shape), keys, value)
        chosen = best.flat[flat] == keys
        out.flat[flat[chosen]] = value[chosen]

    def extreme_runs(self, fn: str, values: Array, starts: Array) -> Array:
        """The extreme of each run of rows that begins at one of `starts`."""
        if not self._literals:
            return combine_runs(fn, values, starts)
        keys = self.keys(values)
        best = combine_runs(fn, keys, starts)
        lengths = np.diff(np.append(starts, len(values)))
        found = combine_runs("max", np.where(keys == np.repeat(best, lengths, axis=0), values, -np.inf), starts)
        return np.where(np.isnan(best), np.nan, found)


def literals_of(kernel: Kernel) -> set[float]:
    """The literals that a kernel compares elements of floating point with."""
    floats = {name for name, t in kernel.tensors.items() if t.dtype.is_float}
    found: set[float] = set()
    for nest in kernel.nests:
        for e in nest.exprs():
            for x in walk(e):
                if not isinstance(x, Apply) or x.fn not in _ORDERED:
                    continue
                if any(isinstance(part, Load) and part.param in floats for part in walk(x)):
                    found.update(float(a.value) for a in x.args if isinstance(a, Const))
    return found
