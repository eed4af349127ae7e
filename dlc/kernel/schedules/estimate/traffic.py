"""Bytes that loops move between a cache of some size and what lies behind it.

A loop whose every iteration touches less than the cache holds brings each line once; of any other the iterations bring
theirs one after another. What is touched follows from subscripts, as the steps by which they move with each loop. Lines
that lie a multiple of a power of two apart, such as one of each row of a matrix, share few sets of a cache, so that it
holds fewer of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from dlc.kernel.expr import Axis, Expr, axes_in
from dlc.kernel.simplify import linear

LINE = 64
"""Bytes of a line of a cache."""
WAYS = 8
"""Lines of a set of a cache."""


Trips: TypeAlias = tuple[tuple[str, int], ...]
"""Values that axes take, by name: those that move an access."""


@dataclass(frozen=True)
class Access:
    """Elements of a tensor that move with the same loops by the same steps.

    Attributes:
        steps: How far a subscript moves per step of each axis by name; None: data decide.
        pieces: The bytes where runs of elements begin that lie within a line of each other, where no loop moves.
        length: Bytes of such a run, on average.
        itemsize: Bytes of an element.
        size: Bytes of the tensor.
    """

    tensor: str
    steps: tuple[tuple[str, int], ...] | None
    pieces: tuple[int, ...]
    length: float
    itemsize: int
    size: int

    def by_steps(self, axis: str, step: int) -> Access:
        """The same inside of a loop whose axis moves by so much at a time."""
        if self.steps is None:
            return self
        return replace(self, steps=tuple((name, n * step if name == axis else n) for name, n in self.steps))

    def moved(self, trips: Trips, axis: str, count: int) -> Trips:
        """With the iterations of a loop around, if it moves the elements."""
        return trips if self.steps is not None and not dict(self.steps).get(axis) else (*trips, (axis, count))

    def bytes(self, trips: Trips) -> float:
        """Of the lines that are touched while these axes take so many values."""
        pieces, length, _ = self._runs(trips, 0)
        return min(self.size, pieces * (length - self.itemsize + LINE))

    def held(self, trips: Trips, way: int) -> float:
        """Bytes of a cache with ways of `way` bytes that can hold nothing else then.

        Where that is more than half of its ways in some sets, as many as if these had been filled in all sets.
        """
        pieces, length, places = self._runs(trips, way)
        lines = max(length, LINE)
        ways = min(self.size, pieces * lines) / min(places * lines, way)
        return ways * way if ways > WAYS / 2 else self.bytes(trips)

    def _runs(self, trips: Trips, way: int) -> tuple[int, float, int]:
        """(Runs of bytes, their length, how many of them begin in different places of a way)."""
        pieces, length = len(self.pieces), self.length
        places = len({p % way for p in self.pieces}) if way else 1
        if self.steps is None:
            return pieces * math.prod(count for _, count in trips), length, max(1, way // LINE)
        steps = dict(self.steps)
        for step, count in sorted((abs(steps[name]) * self.itemsize, count) for name, count in trips):
            if step <= max(length, LINE):
                length += step * (count - 1)
            else:
                pieces *= count
                places *= min(count, way // math.gcd(step, way)) if way else 1
        return pieces, length, places


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
            random += LINE
            constant = random
        spots.update(range(constant, constant + lanes))
    return [_access(tensor, steps, spots, *tensors[tensor]) for (tensor, steps), spots in found.items()]


def _access(
    tensor: str, steps: tuple[tuple[str, int], ...] | None, spots: Iterable[int], itemsize: int, size: int
) -> Access:
    pieces: list[int] = []
    total, last = 0, -math.inf
    for at in sorted(n * itemsize for n in spots):
        if at - last > LINE:
            pieces.append(at)
            last = at - itemsize
        total += int(at - last)
        last = at
    return Access(tensor, steps, tuple(pieces), total / len(pieces), itemsize, size)


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


Touched: TypeAlias = dict[tuple[Access, Trips], None]
"""What is touched, each once."""


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
    def _touched(self) -> Touched:
        """What an iteration touches, with the iterations of the loops around it."""
        found: Touched = {(a, ()): None for a in self.own}
        for n in self.inside:
            found.update(n.all)
        return found

    @cached_property
    def all(self) -> Touched:
        """What all iterations touch, with the iterations of the loops around it, this one among them."""
        if not self.axis or self.trips == 1:
            return self._touched
        return {(a, a.moved(trips, self.axis, self.trips)): None for a, trips in self._touched}

    @cached_property
    def footprint(self) -> float:
        """Bytes that all iterations touch."""
        return _footprint(self.all)

    @cached_property
    def iteration(self) -> float:
        """Bytes that one iteration touches."""
        return _footprint(self._touched)

    def traffic(self, size: int) -> dict[str, float]:
        """Bytes of each tensor that come into a cache of this size, or leave it."""
        if (self.footprint <= size or self.iteration <= size) and self._held(size // WAYS) <= size:
            return _of_tensors(self.all)
        body = _of_tensors((a, ()) for a in self.own)
        for n in self.inside:
            for name, found in n.traffic(size).items():
                body[name] = body.get(name, 0.0) + found
        return {name: self.trips * found for name, found in body.items()}

    def _held(self, way: int) -> float:
        """What an iteration takes of a cache whose ways have so many bytes, no tensor more than its bytes or a pass."""
        found: dict[str, list[float]] = {}
        sizes: dict[str, int] = {}
        for a, trips in self._touched:
            found.setdefault(a.tensor, []).append(a.held(trips, way))
            sizes[a.tensor] = a.size
        return sum(min(sum(held), max(sizes[name], *held)) for name, held in found.items())


def _footprint(touched: Iterable[tuple[Access, Trips]]) -> float:
    """Bytes of the lines of all accesses."""
    return sum(_of_tensors(touched).values())


def _of_tensors(touched: Iterable[tuple[Access, Trips]]) -> dict[str, float]:
    """The same by tensor, none more than it has."""
    found: dict[str, float] = {}
    sizes: dict[str, int] = {}
    for a, trips in touched:
        found[a.tensor] = found.get(a.tensor, 0.0) + a.bytes(trips)
        sizes[a.tensor] = a.size
    return {name: min(sizes[name], n) for name, n in found.items()}
