"""Boxes: where a guard of constant bounds holds, which elements a nest writes, and which nests can change places."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.kernel.expr import Axis, Const, Expr, axes_in
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.clip import bound
from dlc.kernel.simplify import conjuncts, linear

Box = tuple[tuple[int, int], ...]
"""Per dimension, the first element and the one after the last."""


def constant_box(axes: Sequence[Axis], guard: Expr | None) -> Box | None:
    """Where a guard holds, as one range `start <= axis < stop` per axis; None when it is no box of constants.

    An empty box has a range that stops where it starts.
    """
    spans = {a: (0, a.extent) for a in axes}
    for g in conjuncts(guard):
        lows: list[Expr] = []
        highs: list[Expr] = []
        axis = next((a for a in axes_in(g) if a in spans), None)
        if axis is None or not bound(g, axis, lows, highs):
            return None
        starts = [int(e.value) for e in lows if isinstance(e, Const)]
        stops = [int(e.value) for e in highs if isinstance(e, Const)]
        if len(starts) + len(stops) < len(lows) + len(highs):
            return None
        start = min(max(spans[axis][0], *starts, 0), axis.extent)
        spans[axis] = start, max(start, min(spans[axis][1], *stops, axis.extent))
    return tuple(spans[a] for a in axes)


def written_box(nest: Nest) -> Box | None:
    """The box that a nest writes; None when its elements form none that constants bound.

    Its subscripts are distinct axes plus constants, and its guard bounds single axes by constants.
    """
    ranges = constant_box(nest.axes, nest.where)
    if ranges is None:
        return None
    inside = dict(zip(nest.axes, ranges, strict=True))
    box: list[tuple[int, int]] = []
    used: list[Axis] = []
    for i in nest.index:
        form = linear(i)
        if form is None or len(form.terms) > 1:
            return None
        start, stop = 0, 1
        for atom, c in form.terms:
            if not isinstance(atom, Axis) or atom not in inside or c != 1:
                return None
            used.append(atom)
            start, stop = inside[atom]
        box.append((start + form.constant, stop + form.constant))
    return tuple(box) if len(set(used)) == len(used) == len(nest.axes) else None


def commute(a: Nest, b: Nest) -> bool:
    """Whether two nests may run in either order, up to the order of sums.

    Nests that assign to one tensor may if they write disjoint boxes, as the parts of a concatenation do: of two that
    write the same element the later one decides, as in a scatter over a copy.
    """
    if a.out in b.reads() or b.out in a.reads():
        return False
    if a.out != b.out:
        return True
    if a.reduce is not None or b.reduce is not None:
        return a.reduce == b.reduce == "add"
    x, y = written_box(a), written_box(b)
    if x is None or y is None:
        return False
    return apart(x, y)


def apart(a: Box, b: Box) -> bool:
    """Whether two boxes are disjoint: in some dimension, one ends before the other begins."""
    return any(stop <= start or end <= begin for (begin, stop), (start, end) in zip(a, b, strict=True))
