"""Sizes that a call finds, of results that themselves are not read:

    n = NonZero(x); y = Size(n)   →   y = Checked(2·n_size, how many of x are not 0)

Shapes are followed as formulas, in which nothing is left of the values that have them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc.base.polynomials import Symbol
from dlc.graph import Op
from dlc.graph.walk import toposort
from dlc.ops.checked import Checked


def with_found_sizes(outputs: Sequence[Op], counts: Mapping[Symbol, Op]) -> tuple[Op, ...]:
    """The results of a graph, depending on what finds each size that they read.

    Args:
        outputs: The results.
        counts: What is computed for the sizes that depend on data, an i64[] for each.
    """
    found = list(outputs)
    while counts and (lost := _lost(found, counts)):
        for s in lost:  # a count may read other sizes, which are lost then
            k = next(k for k, op in enumerate(found) if s in _read(op))
            found[k] = Checked(found[k], counts[s], s.name, s.least, s.most)
    return tuple(found)


def _lost(outputs: Sequence[Op], counts: Mapping[Symbol, Op]) -> list[Symbol]:
    """Sizes among these that outputs read and that nothing finds any more."""
    ops = toposort(tuple(outputs))
    kept = {s for op in ops for s in op.finds}
    return [s for s in dict.fromkeys(s for op in ops for s in op.symbols) if s in counts and s not in kept]


def _read(op: Op) -> frozenset[Symbol]:
    return frozenset(s for x in toposort((op,)) for s in x.symbols)
