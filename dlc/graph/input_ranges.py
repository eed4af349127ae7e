"""What a graph's inputs may be: the ranges of indices and labels, followed back to the inputs that they come from.

    rows = gather(table[10,4], where(ids < 0, ids + 10, ids))   →   ids: i64[8] in "index -20..9"

Every op tells what it takes (`Op.demands`); where an index comes from is read off the kernels on the way (`Tracer`).
What cannot be followed, an index that is computed from several elements or from floats, restricts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from dlc.base.allowed import Allowed, Demand, Interval, Intervals, Part, common, joined, union
from dlc.base.types import Array, DType
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.pieces import HIGH, LOW, Traced
from dlc.graph.structure import Input
from dlc.graph.trace import MOST_ELEMENTS, Tracer
from dlc.graph.walk import toposort

_ANYTHING: Intervals = ((LOW, HIGH),)
_MOST_PARTS = 64
"""Boxes that describe a range; with more, what all restricted elements may be at least."""


def with_ranges(graph: Graph) -> Graph:
    """The graph with `Input.allowed` of every input that says nothing of itself and that something is chosen by."""
    found = input_ranges(graph)
    if not found:
        return graph
    new: dict[Op, Input] = {
        i: Input(i.name, i.of, i.role, i.initial, found[i.name].text) for i in graph.inputs if i.name in found
    }
    changed = graph.substitute(new)
    return replace(changed, inputs=tuple(new.get(i, i) for i in graph.inputs))


def input_ranges(graph: Graph) -> dict[str, Allowed]:
    """By name, what inputs may be that do not say so themselves."""
    tracer, asked = Tracer(), [i for i in graph.inputs if not i.allowed and i.dtype.is_integer]
    if not asked:
        return {}
    ranges = {i.digest: _Range(i) for i in asked}
    for op, demand in demands(graph):
        if isinstance(op, Input):
            if op.digest in ranges:
                ranges[op.digest].restrict_all(demand)
            continue
        value = tracer.value(op)
        if isinstance(value, Traced):
            for i in asked:
                if i.digest in tracer.inputs:
                    ranges[i.digest].restrict(value, demand, tracer.first(i))
    found = {i.name: ranges[i.digest].allowed for i in asked}
    return {name: allowed for name, allowed in found.items() if allowed is not None}


def demands(graph: Graph) -> Iterator[tuple[Op, Demand]]:
    """(value, what it may be) of all that something is chosen by, inside composite ops too."""
    seen: set[str] = set()
    waiting = list(graph.ops)
    while waiting:
        op = waiting.pop()
        if op.digest in seen:
            continue
        seen.add(op.digest)
        if own := op.demands():
            yield from ((getattr(op, name), demand) for name, demand in own.items())
        elif op.expansion is not None and any(x.dtype.is_integer for x in op.operands if len(x.types) == 1):
            waiting += toposort((op.expansion,), op.operands)


class _Range:
    """What the elements of one input may be, as demands come in."""

    def __init__(self, of: Input) -> None:
        self._of = of
        self._what: str = ""
        self._sets: list[Intervals] = [_ANYTHING]
        self._codes: Array | None = None
        """For every element the number of its set; None: 0 for all."""
        self._all: Intervals = _ANYTHING

    def restrict_all(self, demand: Demand) -> None:
        """The input itself is what chooses."""
        if len(demand.intervals) == 1 or len(set(demand.intervals)) == 1:
            self._what = self._what or demand.what
            self._all = common(self._all, demand.intervals[0])
        elif self._of.type.capacity <= MOST_ELEMENTS:
            numbers = np.arange(self._of.type.capacity).reshape(self._of.type.room)
            self.restrict(Traced.elements(numbers), demand, 0)

    def restrict(self, value: Traced, demand: Demand, first: int) -> None:
        """A value whose elements come from those of inputs, this one's from number `first` on."""
        own = (value.source >= first) & (value.source < first + self._of.type.capacity)
        if not own.any():
            return
        self._what = self._what or demand.what
        elements = np.where(own, value.source - first, 0)
        for place, intervals in enumerate(demand.intervals):
            several = len(demand.intervals) > 1
            rows: Any = (..., slice(place, place + 1)) if several else ...
            for found, chosen in _preimages(value, intervals, own, rows):
                self._intersect(elements[rows][chosen], found)

    def _intersect(self, chosen: Array, intervals: Intervals) -> None:
        mask = np.zeros(self._of.type.capacity, np.bool_)
        mask[chosen] = True
        elements = np.flatnonzero(mask)
        if self._codes is None:
            self._codes = np.zeros(self._of.type.capacity, np.int32)
        before = self._codes[elements]
        for code in np.flatnonzero(np.bincount(before)):
            new = common(self._sets[code], intervals)
            if self._what != "label":  # else the ends of all choices stay apart, of each step of a sequence for example
                new = joined(new)
            if new not in self._sets:
                self._sets.append(new)
            self._codes[elements[before == code]] = self._sets.index(new)

    @property
    def allowed(self) -> Allowed | None:
        """The outcome; None: anything."""
        what = "label" if self._what == "label" else "index"
        sets = [_clipped(common(s, self._all), self._of.dtype) for s in self._sets]
        # -1 beside the classes 0 to 9 is no class; subscripts from either end are one range.
        sets = sets if what == "label" else [joined(s) for s in sets]
        if self._codes is None:
            parts = [Part(sets[0])]
        else:
            boxes = _boxes(self._codes.reshape(self._of.type.room))
            parts = [Part(sets[code], box) for code, box in boxes]
        if len(parts) > _MOST_PARTS or (len(parts) > 1 and self._of.type.is_open):
            # Too scattered to be described by boxes: at least nothing that any element may be is refused.
            parts = [Part(union(i for p in parts for i in p.intervals))]
        kept = tuple(p for p in parts if p.intervals and p.intervals != (self._of.dtype.limits,))
        return Allowed(kept, what) if kept else None


def _preimages(value: Traced, intervals: Intervals, own: Array, rows: Any) -> Iterator[tuple[Intervals, Array]]:
    """(what the element may be that a value comes from, the elements of the value with it)."""
    shape = value.source.shape
    ends: list[Array] = [
        np.broadcast_to(end, shape)[rows]
        for piece in value.pieces
        for interval in intervals
        for end in piece.preimage(interval)
    ]
    chosen = own[rows]
    table = np.stack([end[chosen] for end in ends], axis=-1)
    if len(table) and (table == table[0]).all():
        yield union(_pairs(table[0].tolist())), chosen
        return
    distinct, number = np.unique(table, axis=0, return_inverse=True)
    places = np.flatnonzero(chosen)
    for k, row in enumerate(distinct.tolist()):
        mask = np.zeros(chosen.size, np.bool_)
        mask[places[number.reshape(-1) == k]] = True
        yield union(_pairs(row)), mask.reshape(chosen.shape)


def _pairs(row: Sequence[int]) -> Iterator[Interval]:
    return zip(row[::2], row[1::2], strict=True)


def _clipped(intervals: Intervals, of: DType) -> Intervals:
    """What a type can hold of these; ends that stand for no bound become its limits."""
    low, high = of.limits
    ends = ((low if a <= LOW // 4 else a, high if b >= HIGH // 4 else b) for a, b in intervals)
    return common(union(ends), (of.limits,))


def _boxes(codes: Array) -> list[tuple[int, tuple[Interval, ...]]]:
    """(number, box) of boxes in which all numbers are equal; one that is all there is has no ends."""
    if (codes == codes.flat[0]).all():
        return [(int(codes.flat[0]), ())]
    found: list[tuple[int, tuple[Interval, ...]]] = []
    waiting = [tuple((0, n) for n in codes.shape)]
    while waiting and len(found) + len(waiting) <= 4 * _MOST_PARTS:
        box = waiting.pop()
        part = codes[tuple(slice(a, b) for a, b in box)]
        if (part == part.flat[0]).all():
            found.append((int(part.flat[0]), box))
            continue
        axis = min(range(part.ndim), key=lambda d: _changes(part, d).size or part.size)
        cuts = [box[axis][0], *(box[axis][0] + 1 + _changes(part, axis)), box[axis][1]]
        pieces = [(*box[:axis], (int(a), int(b)), *box[axis + 1 :]) for a, b in pairwise(cuts)]
        waiting += reversed(pieces)
    return found if not waiting else [(int(c), ()) for c in np.unique(codes)]


def _changes(part: Array, axis: int) -> Array:
    """Where along an axis what lies behind differs from what lies before."""
    moved = np.moveaxis(part, axis, 0).reshape(part.shape[axis], -1)
    return np.flatnonzero((moved[1:] != moved[:-1]).any(axis=1))
