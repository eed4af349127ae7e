"""Bytes that loops move between a cache of some size and what lies behind it.

A loop whose every iteration touches less than the cache holds brings each line once; of any other the iterations bring
theirs one after another. What is touched follows from subscripts, as the steps by which they move with each loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from dlc.kernel.expr import Axis, Expr, axes_in
from dlc.kernel.simplify import linear

LINE = 64
"""Bytes of a line of a cache."""


@dataclass(frozen=True)
class Access:
    """Elements of a tensor that move with the same loops by the same steps.

    Attributes:
        steps: How far a subscript moves per step of each axis by name; None: data decide.
        first, last: Of the constants in their subscripts.
        count: How many elements, where no loop moves.
        itemsize: Bytes of an element.
        size: Bytes of the tensor.
    """

    tensor: str
    steps: tuple[tuple[str, int], ...] | None
    first: int
    last: int
    count: int
    itemsize: int
    size: int

    def by_steps(self, axis: str, step: int) -> Access:
        """The same inside of a loop whose axis moves by so much at a time."""
        if self.steps is None:
            return self
        return replace(self, steps=tuple((name, n * step if name == axis else n) for name, n in self.steps))

    def bytes(self, trips: Mapping[str, int]) -> float:
        """Of the lines that are touched while these axes take so many values."""
        if self.steps is None:
            return min(self.size, LINE * self.count * math.prod(trips.values()))
        moving = [(abs(step), trips[name]) for name, step in self.steps if name in trips and trips[name] > 1]
        span = self.last - self.first + 1 + sum(step * (n - 1) for step, n in moving)
        count = min(span, self.count * math.prod(n for _, n in moving))
        gap = 1 if self.count > 1 else min((step for step, _ in moving), default=1)
        return min(self.size, span * self.itemsize + LINE / 2, count * min(LINE, gap * self.itemsize) + LINE / 2)


def accesses(places: Iterable[tuple[str, Expr, int]], tensors: Mapping[str, tuple[int, int]]) -> list[Access]:
    """Of (tensor, subscript of the first element, elements), those that move alike together.

    `tensors`: bytes of an element, and of all.
    """
    found: dict[tuple[str, tuple[tuple[str, int], ...] | None], set[int]] = {}
    random = 0
    for tensor, at, lanes in places:
        steps, constant = _steps(at)
        spots = found.setdefault((tensor, steps), set())
        if steps is None:
            random += 1
            constant = random
        spots.update(range(constant, constant + lanes))
    return [
        Access(tensor, steps, min(spots), max(spots), len(spots), *tensors[tensor])
        for (tensor, steps), spots in found.items()
    ]


def _steps(at: Expr) -> tuple[tuple[tuple[str, int], ...] | None, int]:
    """How far a subscript moves with each axis, and its constant; of quotients and remainders roughly."""
    form = linear(at)
    if form is None:
        return None, 0
    steps: dict[str, int] = {}
    for atom, c in form.terms:
        if isinstance(atom, Axis):
            steps[atom.name] = steps.get(atom.name, 0) + c
        else:
            for axis in axes_in(atom):
                steps[axis.name] = steps.get(axis.name, 0) + c
    return tuple(sorted(steps.items())), form.constant


@dataclass(frozen=True)
class Nested:
    """Loops as what they touch.

    Attributes:
        axis: Name of the axis of the loop; "" where there is none.
        trips: Iterations.
        own: What an iteration touches besides the loops inside.
        inside: The loops inside.
    """

    axis: str
    trips: int
    own: Sequence[Access]
    inside: Sequence[Nested]

    def by_steps(self, axis: str, step: int) -> Nested:
        """The same inside of a loop whose axis moves by so much at a time."""
        if step == 1:
            return self
        own = [a.by_steps(axis, step) for a in self.own]
        return replace(self, own=own, inside=[n.by_steps(axis, step) for n in self.inside])

    @cached_property
    def _all(self) -> Mapping[str, int]:
        """Axes of this loop and those inside, with their iterations."""
        found = {self.axis: self.trips} if self.axis else {}
        for n in self.inside:
            for name, trips in n._all.items():
                found[name] = max(trips, found.get(name, 0))
        return found

    @cached_property
    def _everything(self) -> Sequence[Access]:
        return [*self.own, *(a for n in self.inside for a in n._everything)]

    @cached_property
    def footprint(self) -> float:
        """Bytes that all iterations touch."""
        return _footprint(self._everything, self._all)

    @cached_property
    def iteration(self) -> float:
        """Bytes that one iteration touches."""
        trips = dict(self._all)
        trips.pop(self.axis, None)
        return _footprint(self._everything, trips)

    def traffic(self, size: int) -> float:
        """Bytes that come into a cache of this size, or leave it."""
        if self.footprint <= size or self.iteration <= size:
            return self.footprint
        body = _footprint(self.own, {}) + sum(n.traffic(size) for n in self.inside)
        return self.trips * body


def _footprint(all_of: Iterable[Access], trips: Mapping[str, int]) -> float:
    """Bytes of the lines of all accesses, no tensor more than it has."""
    found: dict[str, float] = {}
    sizes: dict[str, int] = {}
    for a in all_of:
        found[a.tensor] = found.get(a.tensor, 0.0) + a.bytes(trips)
        sizes[a.tensor] = a.size
    return sum(min(sizes[name], n) for name, n in found.items())
