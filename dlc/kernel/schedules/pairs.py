"""Rows of which every second element and those between are combined: whole vectors first, whose lanes are picked then.

    max(x[2i], x[2i+1], y[2i], y[2i+1])  →  a = max(x[2i .. +16], y[2i .. +16]); b = the same of the 16 elements behind
                                            max(even lanes of a and b, odd lanes of a and b)

Here i are the lanes of a vector of 16. Pooling of two by two has this form: half as many vectors are loaded, and lanes
are picked once for all rows of a window. Sums are rounded in another order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from dlc.base.types import DType
from dlc.kernel.expr import Apply, Expr, Load, combined, operands_of
from dlc.kernel.loops.program import Lanes, Let, Local, Shuffle, Stmt
from dlc.kernel.simplify import simplify

COMBINING: Final = ("max", "min", "add")
"""Functions whose operands may be combined in any order."""


def paired(e: Expr, dtype: DType, into: list[Stmt]) -> Expr:
    """A vector of a type with the module's rewrite in it; `into` gets the variables that it needs."""
    match e:
        case Apply(fn, args):
            terms = list(operands_of(fn, e)) if fn in COMBINING else []
            pairs = _pairs(terms)
            if not pairs:
                return Apply(fn, tuple(paired(a, dtype, into) for a in args))
            lanes = pairs[0][0].lanes
            halves: list[Local] = []
            for k in (0, lanes):
                halves.append(Local(f"half{len(into)}", dtype, lanes))
                into.append(Let(halves[-1], combined(fn, [replace(_behind(even, k), step=1) for even, _ in pairs])))
            both = [Shuffle(halves[0], halves[1], tuple(range(odd, 2 * lanes, 2))) for odd in (0, 1)]
            taken = {x for pair in pairs for x in pair}
            return combined(fn, [*both, *(paired(t, dtype, into) for t in terms if t not in taken)])
        case _:
            return e


def _pairs(terms: Sequence[Expr]) -> list[tuple[Lanes, Lanes]]:
    """Vectors of every second element, and those of the elements between; each is in one pair, and counts once."""
    every = [t for t in terms if isinstance(t, Lanes) and t.step == 2 and terms.count(t) == 1]
    found: list[tuple[Lanes, Lanes]] = []
    taken = set[Expr]()
    for even in every:
        odd = _behind(even, 1)
        if odd in every and not taken & {even, odd}:
            found.append((even, odd))
            taken |= {even, odd}
    return found


def _behind(x: Lanes, count: int) -> Lanes:
    """The vector that begins so many elements behind another."""
    return replace(x, first=Load(x.first.param, (simplify(x.first.index[0] + count),)))
