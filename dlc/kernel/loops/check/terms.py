"""Maxima, minima and comparisons in an arithmetic in which every term, and every number that is compared, shows.

    max(a, b) = a + b + K       min(a, b) = a + b + L       with -inf, and +inf, where there is no term yet

    a = b, where they are not the same, and a < b: random bits that |a - b| decides, and the sign of a - b

K and L are random residues. Both are associative and commutative, so terms may come in any order and any grouping: a
maximum of n terms is their sum and n-1 times K. In the true order a term shows where it is the largest only, which one
of a thousand terms of one result seldom is. But max(a, a) is not a here, so loops that take a term twice differ.

Random bits are no order: from a < b and b < c nothing follows. Where a kernel compares elements of one tensor with each
other, loops may sort them, which is right for any order but for nothing less, so comparisons are those of `order`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from dlc.base.types import Array
from dlc.kernel.expr import Apply, Expr, Load, walk
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.check.modular import add, add_at, mixed, reduced, residue, sums, words_of
from dlc.kernel.loops.check.order import COMPARING, Order
from dlc.kernel.scalar import combine_at, combine_runs

_NONE: Final = {"max": -np.inf, "min": np.inf}
"""What stands for no terms."""
_EACH: Final = {"max": residue(1 / 31013), "min": residue(1 / 58129)}
"""What a term counts beside its value."""


class Terms(Order):
    """Extremes and comparisons as the module says."""

    def __init__(self, literals: Iterable[float] = (), *, sorts: bool = False) -> None:
        """Of a kernel that compares with these numbers; `sorts`: and elements of one tensor with each other."""
        super().__init__(literals)
        self._sorts = sorts

    def compared(self, fn: str, a: Array, b: Array) -> Array:
        """Whether a comparison holds: by random bits of the distance, so that each number that is compared shows."""
        if self._sorts or np.isinf(a).any() or np.isinf(b).any():
            return super().compared(fn, a, b)
        distance = reduced(a - b)
        coin = (mixed(words_of(np.abs(distance))) & np.uint64(1)).astype(bool)
        match fn:
            case "eq" | "ne":
                return ((distance == 0) | coin) == (fn == "eq")
            case "lt" | "ge":
                return ((distance != 0) & ((distance < 0) != coin)) == (fn == "lt")
            case _:
                return ((distance != 0) & ((distance > 0) != coin)) == (fn == "gt")

    def extreme(self, fn: str, a: Array, b: Array) -> Array:
        """The two, and all that they are of."""
        found = add(add(_terms(fn, a), _terms(fn, b)), np.asarray(-_EACH[fn]))
        return np.where(a == _NONE[fn], b, np.where(b == _NONE[fn], a, found))

    def extreme_at(self, fn: str, out: Array, index: tuple[Array, ...], value: Array) -> None:
        """out[index] = fn(out[index], value), for every index in turn."""
        found, some = _terms(fn, out), (out != _NONE[fn]).astype(np.float64)
        add_at(found, index, _terms(fn, value))
        combine_at("max", some, index, (value != _NONE[fn]).astype(np.float64))
        out[...] = np.where(some > 0, add(found, np.asarray(-_EACH[fn])), _NONE[fn])

    def extreme_runs(self, fn: str, values: Array, starts: Array) -> Array:
        """Of each run of rows that begins at one of `starts`."""
        found = add(sums(_terms(fn, values), starts), np.asarray(-_EACH[fn]))
        some = combine_runs("max", (values != _NONE[fn]).astype(np.float64), starts)
        return np.where(some > 0, found, _NONE[fn])


def sorts(kernel: Kernel) -> bool:
    """Whether elements of one tensor of floating-point numbers are compared with each other."""
    return any(
        isinstance(x, Apply)
        and x.fn in COMPARING
        and not _floats(kernel, x.args[0]).isdisjoint(_floats(kernel, x.args[1]))
        for nest in kernel.nests
        for e in nest.exprs()
        for x in walk(e)
    )


def _floats(kernel: Kernel, e: Expr) -> set[str]:
    loaded = (x.param for x in walk(e) if isinstance(x, Load))
    return {name for name in loaded if kernel.tensors[name].dtype.is_float}


def _terms(fn: str, x: Array) -> Array:
    """Extremes as what is summed: x and the residue of one term; 0 for none."""
    none = x == _NONE[fn]
    return np.where(none, 0.0, add(np.where(none, 0.0, x), np.asarray(_EACH[fn])))
