"""Whether subscripts are different for different index values: what a left side must be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from dlc.base.types import Array
from dlc.kernel.expr import Apply, Axis, Const, Expr
from dlc.kernel.scalar import SCALARS
from dlc.kernel.simplify import linear

MAX_POINTS = 1 << 20
"""Points that are enumerated; larger spaces are decided by reasoning only."""


def is_injective(index: Sequence[Expr], shape: Sequence[int], axes: Sequence[Axis]) -> bool:
    """Whether no element is addressed twice by the points of `axes` whose subscripts lie in `shape`.

    Exact up to `MAX_POINTS` points; beyond, False may also mean that no proof was found.
    """
    return _by_radix(index, axes) or (math.prod(a.extent for a in axes) <= MAX_POINTS and _by_trial(index, shape, axes))


def _by_radix(index: Sequence[Expr], axes: Sequence[Axis]) -> bool:
    """Repeatedly: a subscript in which each coefficient exceeds what all smaller ones reach tells its indices."""
    known: set[Axis] = set()
    while True:
        fresh = {a for e in index for a in _determined(e, known)} - known
        if not fresh:
            return known >= {a for a in axes if a.extent > 1}
        known |= fresh


def _determined(e: Expr, known: set[Axis]) -> set[Axis]:
    form = linear(e)
    if form is None:
        return set()
    reach = 0
    unknown: list[tuple[Axis, int]] = []
    for atom, c in form.terms:
        if not isinstance(atom, Axis):
            return set()
        if atom not in known:
            unknown.append((atom, abs(c)))
    for axis, c in sorted(unknown, key=lambda term: term[1]):
        if c <= reach:
            return set()
        reach += c * (axis.extent - 1)
    return {axis for axis, _ in unknown}


def _by_trial(index: Sequence[Expr], shape: Sequence[int], axes: Sequence[Axis]) -> bool:
    rank = len(axes)
    values: dict[Expr, Array] = {
        a: np.arange(a.extent, dtype=np.int64).reshape([-1 if k == d else 1 for k in range(rank)])
        for d, a in enumerate(axes)
    }
    inside: Array = np.ones(tuple(a.extent for a in axes), np.bool_)
    place: Array = np.zeros(tuple(a.extent for a in axes), np.int64)
    for e, size in zip(index, shape, strict=True):
        at = _value(e, values)
        if at is None:
            return False
        inside = inside & (at >= 0) & (at < size)
        place = place * size + at
    chosen = place[inside]
    return bool(np.unique(chosen).size == chosen.size)


def _value(e: Expr, axes: Mapping[Expr, Array]) -> Array | None:
    match e:
        case Const(value):
            return np.asarray(value, np.int64)
        case Axis():
            return axes[e]
        case Apply(fn, args):
            found = [_value(a, axes) for a in args]
            return None if any(f is None for f in found) else SCALARS[fn].value(*found)
        case _:
            return None
